"""Invalid batches: both decoders agree, and neither crashes."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random
from types import ModuleType
from typing import Any

import pytest

from partage.wire.primitives import MalformedError, encode_varint
from partage.wire.records.columns import OFFSET_MAX
from partage.wire.records.compression import compress
from partage.wire.records.encoder import SimpleRecord, encode_batch

from . import arrow_tables
from .batch_factory import log, marker, raw_batch, raw_record, sealed, sealed_log
from .corruption import BYTES, PUSHED, agree, damaged

MEMORY_SPARE = 1 << 20


@pytest.mark.parametrize("seed", range(10))
def test_decoders_agree_on_random_damage(both: list[ModuleType], seed: int) -> None:
    """Damaged logs, most with repaired checksums, so that the record parser sees the damage."""
    rng = Random(seed)
    kinds: dict[bool, int] = {True: 0, False: 0}
    for _ in range(120):
        codecs = rng.choice(((0,), (0,), (0, 1, 2, 3, 4)))
        blob = log(rng, rng.choice((1, 2, 3)), codecs=codecs)
        if rng.random() < 0.3:
            blob += marker(1, 0, 1000)
        blob = damaged(rng, blob)
        if rng.random() < 0.9:
            blob = sealed_log(blob)
        columns = agree(both, blob, verify_crc=rng.random() < 0.5)
        if columns is not MalformedError:
            arrow_tables.table(columns)
        kinds[columns is MalformedError] += 1
    assert min(kinds.values()) > 5, "the fuzzer reaches both ends"


@pytest.mark.parametrize("seed", range(4))
def test_decoders_agree_on_random_records(both: list[ModuleType], seed: int) -> None:
    """Valid headers around random bytes."""
    rng = Random(seed)
    for _ in range(150):
        parts = [
            rng.choice((rng.choice(PUSHED), bytes([rng.choice(BYTES)]), raw_record(), b"\x0e\x00"))
            for _ in range(rng.randrange(2, 30))
        ]
        payload = b"".join(parts)
        count = rng.randrange(1, 4)
        codec = rng.choice((0, 0, 4))
        batch = raw_batch(
            compress(codec, payload),
            attributes=codec,
            record_count=count,
            last_offset_delta=rng.choice((count - 1, 2**31 - 1)),
        )
        agree(both, batch, verify_crc=True)


def test_decoders_agree_on_every_truncation(both: list[ModuleType]) -> None:
    """In a truncated log, complete batches are read. A truncated payload in a valid batch is
    malformed.
    """
    rng = Random(8)
    blob = log(rng, 3, codecs=(0,))
    for size in range(0, len(blob), 1 + len(blob) // 400):
        assert agree(both, blob[:size], verify_crc=True) is not MalformedError
    payload = encode_batch(
        [SimpleRecord(b"key", b"value" * 20, (("h", b"x" * 70), ("i", None)))] * 2
    )[61:]
    for size in range(len(payload)):
        batch = raw_batch(payload[:size], record_count=2, last_offset_delta=1)
        assert agree(both, batch, verify_crc=True) is MalformedError


def test_every_flipped_bit_fails_checksum(decoder: ModuleType) -> None:
    """All bytes that the checksum covers. A flip before them fails elsewhere or moves offsets."""
    batch = encode_batch([SimpleRecord(b"key", b"value")], base_offset=64)
    for bit in range(21 * 8, len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decoder.scan(flipped).reason == "crc"
        with pytest.raises(MalformedError, match="crc"):
            decoder.decode_pairs(flipped)


def columns_of(decoder: ModuleType, blob: bytes, from_offset: int = 0) -> Any:
    return decoder.decode_columns(
        blob, from_offset=from_offset, to_offset=OFFSET_MAX, with_headers=True, verify_crc=True
    )


@pytest.mark.parametrize("codec", [0, 4])
def test_records_before_damage_are_returned(decoder: ModuleType, codec: int) -> None:
    """The call that begins with the invalid batch raises, so a reader knows its position."""
    good = encode_batch(
        [SimpleRecord(b"k", None, (("h", b"v"),)), SimpleRecord(None, b"v")], compression=codec
    )
    payload = raw_record(key=encode_varint(2) + b"kk", headers=b"\x02\x02h\x02v")
    payload += raw_record(delta=encode_varint(1), key=encode_varint(2**31 - 1))
    bad = raw_batch(
        compress(codec, payload),
        attributes=codec,
        base_offset=2,
        record_count=2,
        last_offset_delta=1,
    )
    columns = columns_of(decoder, good + bad + good)
    assert columns == columns_of(decoder, good)
    assert columns.next_offset == 2
    arrow_tables.table(columns)
    for unsound in (bad[:-1] + b"?", bad[:16] + b"\x01" + bad[17:]):
        assert columns_of(decoder, good + unsound + good) == columns
    with pytest.raises(MalformedError, match="offset 2"):
        columns_of(decoder, good + bad, from_offset=2)
    with pytest.raises(MalformedError):
        columns_of(decoder, bad, from_offset=2)
    with pytest.raises(MalformedError):
        decoder.decode_records(good + bad)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_declared_count_does_not_allocate(decoder: ModuleType, codec: int) -> None:
    """A count of two billion in a batch of a hundred bytes."""
    batch = raw_batch(
        compress(codec, raw_record()),
        attributes=codec,
        record_count=2**31 - 1,
        last_offset_delta=2**31 - 1,
    )
    headers = raw_batch(raw_record(headers=encode_varint(2**31 - 1)))
    tracemalloc.start()
    try:
        for blob in (batch, headers):
            with pytest.raises(MalformedError):
                columns_of(decoder, blob)
            with pytest.raises(MalformedError):
                decoder.decode_records(blob)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_SPARE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_bomb_is_malformed(decoder: ModuleType, codec: int) -> None:
    """A batch that decompresses to 16 MB of records, with a limit of a quarter of one."""
    record = raw_record(value=encode_varint(1 << 20) + bytes(1 << 20))
    batch = raw_batch(
        compress(codec, record * 16), attributes=codec, record_count=16, last_offset_delta=15
    )
    tracemalloc.start()
    try:
        for name in ("decode_records", "decode_pairs"):
            with pytest.raises(MalformedError, match="more than 262144 bytes"):
                getattr(decoder, name)(batch, decompressed_max=1 << 18)
        with pytest.raises(MalformedError, match="more than 262144 bytes"):
            decoder.decode_columns(
                batch,
                from_offset=0,
                to_offset=OFFSET_MAX,
                with_headers=True,
                verify_crc=True,
                decompressed_max=1 << 18,
            )
        assert tracemalloc.get_traced_memory()[1] < MEMORY_SPARE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key", [b"", None, b"\x00", b"\x00\x00\x00"])
def test_invalid_transaction_marker(decoder: ModuleType, key: bytes | None) -> None:
    """They are skipped unless the reader must know which transactions they end."""
    batch = encode_batch(
        [SimpleRecord(key, b"")], is_control=True, is_transactional=True, producer_id=1
    )
    assert decoder.decode_records(batch) == []
    with pytest.raises(MalformedError):
        decoder.decode_records(batch, read_committed_aborted=[])
    empty = encode_batch([], last_offset_delta=0, is_control=True)
    assert decoder.decode_records(empty, read_committed_aborted=[]) == []


def test_unknown_codec_is_malformed(decoder: ModuleType) -> None:
    for codec in (5, 6, 7):
        with pytest.raises(MalformedError, match="codec"):
            decoder.decode_pairs(raw_batch(raw_record(), attributes=codec))


def test_offset_outside_batch_is_malformed(decoder: ModuleType) -> None:
    batch = raw_batch(raw_record(delta=encode_varint(1)))
    with pytest.raises(MalformedError):
        decoder.decode_records(batch)
    with pytest.raises(MalformedError):
        decoder.decode_records(raw_batch(raw_record(delta=encode_varint(-1))))


def test_decreasing_base_offset_keeps_next_offset(decoder: ModuleType) -> None:
    blob = encode_batch([SimpleRecord(b"a", b"")], base_offset=9) + encode_batch(
        [SimpleRecord(b"b", b"")]
    )
    columns = columns_of(decoder, blob)
    assert (columns.count, columns.next_offset) == (2, 10)


def test_wrong_buffer_type_is_refused(decoder: ModuleType) -> None:
    batch = encode_batch([SimpleRecord(b"k", b"v")])
    signed = memoryview(bytearray(batch)).cast("b")
    assert decoder.decode_pairs(signed) == [(b"k", b"v")]
    assert decoder.scan(signed).count == 1
    for wrong in (7, [7], "text", ["text"]):
        with pytest.raises(TypeError):
            decoder.decode_pairs(wrong)
    with pytest.raises((BufferError, TypeError)):
        decoder.decode_pairs(memoryview(bytes(2 * len(batch)))[::2])


def test_sealed_log_has_valid_checksums(decoder: ModuleType) -> None:
    assert sealed(raw_batch(raw_record(), seal=False)) == raw_batch(raw_record())
    assert struct.unpack_from(">I", raw_batch(raw_record()), 17) != (0,)
    assert decoder.scan(raw_batch(raw_record())).reason == "end"
