"""The scan of batch headers, for recovery."""

from __future__ import annotations

import importlib
from random import Random
from types import ModuleType

import pytest
from crc32c import crc32c

from partage.wire.records.batch import whole_batches
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .batch_factory import log, raw_batch, raw_record, sealed
from .conftest import MODULES, NAMES

SOUND = raw_batch(raw_record())


@pytest.mark.parametrize("seed", range(6))
def test_scan_columns_equal_headers(decoder: ModuleType, seed: int) -> None:
    rng = Random(seed)
    blob = log(rng, 30, start=rng.choice((0, 2**50)))
    found = decoder.scan(blob)
    headers = list(whole_batches(blob))
    assert (found.count, found.stop, found.reason) == (30, len(blob), "end")
    assert found.position.tolist() == [pos for pos, _ in headers]
    for column, name in (
        (found.base_offset, "base_offset"),
        (found.last_offset, "last_offset"),
        (found.max_timestamp_ms, "max_timestamp_ms"),
        (found.producer_id, "producer_id"),
        (found.producer_epoch, "producer_epoch"),
        (found.base_sequence, "base_sequence"),
        (found.record_count, "record_count"),
        (found.attributes, "attributes"),
        (found.leader_epoch, "leader_epoch"),
    ):
        assert column.tolist() == [getattr(header, name) for _, header in headers]


def test_scan_negative_and_largest_fields(decoder: ModuleType) -> None:
    batch = raw_batch(
        raw_record(),
        attributes=-1 << 8,
        producer_id=2**63 - 1,
        producer_epoch=2**15 - 1,
        base_sequence=2**31 - 1,
        max_timestamp_ms=-(2**63),
        leader_epoch=2**31 - 1,
    )
    found = decoder.scan(batch)
    assert found.reason == "end"
    assert found.attributes.tolist() == [-256]
    assert found.producer_id.tolist() == [2**63 - 1]
    assert found.producer_epoch.tolist() == [2**15 - 1]
    assert found.base_sequence.tolist() == [2**31 - 1]
    assert found.max_timestamp_ms.tolist() == [-(2**63)]
    assert found.leader_epoch.tolist() == [2**31 - 1]


def test_scan_from_position(decoder: ModuleType) -> None:
    blob = log(Random(1), 5)
    whole = decoder.scan(blob)
    third = whole.position[2]
    later = decoder.scan(memoryview(blob), third)
    assert later.position == whole.position[2:]
    assert decoder.scan(blob, len(blob)).reason == "end"
    for pos in (-1, len(blob) + 1):
        with pytest.raises(ValueError, match="is outside a buffer"):
            decoder.scan(blob, pos)


def test_scan_with_batches_max(decoder: ModuleType) -> None:
    blob = log(Random(2), 25)
    pos, due, positions, reasons = 0, 0, [], []
    while not reasons or reasons[-1] == "full":
        piece = decoder.scan(blob, pos, offset_min=due, batches_max=10)
        positions += piece.position
        reasons.append(piece.reason)
        pos, due = piece.stop, piece.last_offset[-1] + 1
    assert positions == decoder.scan(blob).position.tolist()
    assert reasons == ["full", "full", "end"]
    assert decoder.scan(blob, batches_max=25).reason == "end"
    none = decoder.scan(blob, batches_max=0)
    assert (none.count, none.stop, none.reason) == (0, 0, "full")


def test_scan_many_tiny_batches(decoder: ModuleType) -> None:
    """More batches than any initial estimate of their number."""
    one = encode_batch([SimpleRecord(None, None)])
    blob = b"".join(n.to_bytes(8, "big") + one[8:] for n in range(5000))
    found = decoder.scan(blob)
    assert (found.count, found.reason) == (5000, "end")
    assert found.base_offset.tolist() == found.last_offset.tolist() == list(range(5000))


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", "end"),
        (b"\x00", "incomplete"),
        (SOUND[:60], "incomplete"),
        (SOUND[:61], "incomplete"),
        (SOUND[:-1], "incomplete"),
        (bytes(61), "magic"),
        (raw_batch(raw_record(), magic=1), "magic"),
        (raw_batch(raw_record(), length=48), "length"),
        (raw_batch(raw_record(), length=-1), "length"),
        (raw_batch(raw_record(), length=-(2**31)), "length"),
        (raw_batch(raw_record(), length=2**31 - 1), "incomplete"),
        (raw_batch(raw_record(), base_offset=10), "end"),
        (raw_batch(raw_record(), base_offset=9), "order"),
        (raw_batch(raw_record(), base_offset=-1), "order"),
        (raw_batch(raw_record(), base_offset=2**63 - 1), "order"),
        (raw_batch(raw_record(), base_offset=2**63 - 2), "end"),
        (raw_batch(raw_record(), base_offset=2**63 - 2, last_offset_delta=1), "order"),
        (raw_batch(raw_record(), base_offset=10, record_count=-1), "count"),
        (raw_batch(raw_record(), base_offset=10, record_count=2), "count"),
        (raw_batch(raw_record(), base_offset=10, last_offset_delta=-1, record_count=0), "count"),
        (
            raw_batch(
                raw_record(), base_offset=10, last_offset_delta=2**31 - 1, record_count=2**31 - 1
            ),
            "count",
        ),
        (raw_batch(raw_record(), base_offset=10, crc=1, seal=False), "crc"),
        (sealed(raw_batch(raw_record(), base_offset=10))[:-1] + b"\x01", "crc"),
    ],
)
def test_scan_stop_and_reason(decoder: ModuleType, tail: bytes, reason: str) -> None:
    good = encode_batch([SimpleRecord(b"k", b"v")] * 10)
    found = decoder.scan(good + tail)
    assert found.reason == reason
    sound = reason == "end" and tail
    assert found.count == (2 if sound else 1)
    assert found.stop == len(good + tail if sound else good)


def test_scan_without_checksums(decoder: ModuleType) -> None:
    blob = raw_batch(raw_record(), crc=1, seal=False)
    assert decoder.scan(blob).reason == "crc"
    assert decoder.scan(blob, verify_crc=False).reason == "end"


@pytest.mark.skipif("native" not in NAMES, reason="the compiled module was not asked for")
def test_checksum_by_instruction_and_tables_agree() -> None:
    """Machines without a CRC instruction use tables; large inputs are folded first."""
    native = importlib.import_module(MODULES["native"])
    held = memoryview(Random(1).randbytes(100_000))
    for start in range(9):
        for stop in (*range(start, 40), *range(250, 700), 99_990, 100_000):
            expected = crc32c(held[start:stop])
            assert native.checksums(held[start:stop]) == (expected, expected)
