"""The decoder contract for valid batches."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from partage.wire.primitives import encode_varint
from partage.wire.records.columns import OFFSET_MAX, RecordColumns
from partage.wire.records.encoder import SimpleRecord, encode_batch

from . import arrow_tables
from .batch_factory import (
    ABORT,
    CODECS,
    COMMIT,
    NOW_MS,
    as_tuples,
    log,
    marker,
    raw_batch,
    raw_record,
    records,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def columns_of(decoder: ModuleType, blobs: Any, **changed: Any) -> RecordColumns:
    options = {
        "from_offset": 0,
        "to_offset": OFFSET_MAX,
        "with_headers": True,
        "verify_crc": True,
    }
    return decoder.decode_columns(blobs, **options | changed)


@pytest.mark.parametrize("seed", range(12))
def test_both_decoders_agree(both: list[ModuleType], seed: int) -> None:
    """Logs of all codecs, complete and truncated anywhere, with various ranges and size limits."""
    rng = Random(seed)
    blob = log(rng, 12, start=rng.choice((0, 1000)))
    cut = rng.randrange(len(blob))
    first = int.from_bytes(blob[:8], "big")
    for blobs in (blob, blob[:cut], [blob[:cut], blob], [], b""):
        for _ in range(4):
            options = {
                "from_offset": rng.choice((0, first, first + rng.randrange(200))),
                "to_offset": rng.choice((OFFSET_MAX, first + rng.randrange(200))),
                "with_headers": rng.random() < 0.7,
                "size_max": rng.choice((2**31 - 1, 0, 1000, 20_000)),
            }
            results = [columns_of(implementation, blobs, **options) for implementation in both]
            assert all(result == results[0] for result in results)
            arrow_tables.table(results[0])
            for implementation in both:
                if options["size_max"] == 2**31 - 1 and options["with_headers"]:
                    ranged = implementation.decode_records(
                        blobs, options["from_offset"], options["to_offset"]
                    )
                    assert ranged == arrow_tables.tuples(results[0])


@pytest.mark.parametrize("codec", CODECS)
def test_fetch_as_columns(decoder: ModuleType, codec: int) -> None:
    written = records(Random(codec), 3000)
    blobs = [
        encode_batch(written[i : i + 100], base_offset=i, compression=codec)
        for i in range(0, 3000, 100)
    ]
    columns = columns_of(decoder, b"".join(blobs))
    assert arrow_tables.tuples(columns) == as_tuples(written)
    assert columns.next_offset == 3000
    assert columns_of(decoder, blobs) == columns
    assert columns_of(decoder, [bytearray(blob) for blob in blobs]) == columns
    assert columns_of(decoder, tuple(map(memoryview, blobs))) == columns
    assert arrow_tables.table(columns)["timestamp_type"].to_pylist() == [0] * 3000
    bare = columns_of(decoder, blobs, with_headers=False)
    assert bare.headers is None
    assert (bare.key, bare.value, bare.offset) == (columns.key, columns.value, columns.offset)


def test_buffers_have_exact_size(decoder: ModuleType) -> None:
    written = [SimpleRecord(b"k" * 10, None if n % 2 else b"v" * 100) for n in range(1001)]
    columns = columns_of(decoder, encode_batch(written))
    assert columns.count == 1001
    assert [len(views) for views in (columns.offset, columns.timestamp_us)] == [8008, 8008]
    assert len(columns.timestamp_type) == 4004
    key, value = columns.key, columns.value
    assert (key.null_count, key.validity) == (0, None)
    assert (len(key.offsets), len(key.data)) == (4008, 10_010)
    assert (value.null_count, len(value.validity or b"")) == (500, 126)
    assert (len(value.offsets), len(value.data)) == (4008, 50_100)
    assert columns.headers is not None
    assert (columns.headers.count, len(columns.headers.offsets)) == (0, 4008)
    assert (len(columns.headers.key.offsets), columns.headers.key.data) == (4, b"")


@pytest.mark.parametrize("blobs", [b"", [], [b""], encode_batch([SimpleRecord(b"k", b"v")])[:-1]])
def test_empty_input_gives_no_records(decoder: ModuleType, blobs: Any) -> None:
    columns = columns_of(decoder, blobs, from_offset=17)
    assert (columns.count, columns.next_offset) == (0, 17)
    assert arrow_tables.tuples(columns) == []
    assert decoder.decode_records(blobs) == decoder.decode_pairs(blobs) == []


def test_offset_range_inside_batches(decoder: ModuleType) -> None:
    written = records(Random(3), 300)
    expected = as_tuples(written)
    blob = b"".join(encode_batch(written[i : i + 50], base_offset=i) for i in range(0, 300, 50))
    for start, stop in ((0, 300), (0, 1), (49, 51), (50, 100), (120, 199), (299, 300), (70, 70)):
        columns = columns_of(decoder, blob, from_offset=start, to_offset=stop)
        assert arrow_tables.tuples(columns) == expected[start:stop]
        assert columns.next_offset == stop
        assert decoder.decode_records(blob, start, stop) == expected[start:stop]
    beyond = columns_of(decoder, blob, from_offset=400)
    assert (beyond.count, beyond.next_offset) == (0, 400)


def test_gaps_after_compaction(decoder: ModuleType) -> None:
    """Records removed inside batches and at their ends, and an empty batch."""
    first = [SimpleRecord(b"a", b"1", offset_delta=2), SimpleRecord(b"b", b"2", offset_delta=5)]
    blob = encode_batch(first, base_offset=100, last_offset_delta=9)
    blob += encode_batch([], base_offset=110, last_offset_delta=9)
    columns = columns_of(decoder, blob)
    assert [read[0] for read in arrow_tables.tuples(columns)] == [102, 105]
    assert columns.next_offset == 120
    later = columns_of(decoder, blob, from_offset=103)
    assert [read[0] for read in arrow_tables.tuples(later)] == [105]
    assert columns_of(decoder, blob, to_offset=108).next_offset == 108
    assert columns_of(decoder, blob, from_offset=107).next_offset == 120
    assert columns_of(decoder, blob, from_offset=20, to_offset=50).next_offset == 50
    blob += encode_batch(first, base_offset=200)
    within = columns_of(decoder, blob, from_offset=100, to_offset=150)
    assert (within.count, within.next_offset) == (2, 150)


def test_log_append_time(decoder: ModuleType) -> None:
    written = [SimpleRecord(b"k", b"v", (), 5), SimpleRecord(b"k", b"v", (), 9)]
    blob = encode_batch(written, append_time_ms=NOW_MS) + encode_batch(written, base_offset=2)
    columns = columns_of(decoder, blob)
    made = arrow_tables.table(columns)
    assert made["timestamp_type"].to_pylist() == [1, 1, 0, 0]
    assert [read[1] for read in arrow_tables.tuples(columns)] == [NOW_MS, NOW_MS, 5, 9]
    assert [read[1] for read in decoder.decode_records(blob)] == [NOW_MS, NOW_MS, 5, 9]


def test_missing_timestamp(decoder: ModuleType) -> None:
    columns = columns_of(decoder, encode_batch([SimpleRecord(b"k", b"v")]))
    assert struct.unpack("q", columns.timestamp_us) == (-1000,)


@pytest.mark.parametrize(
    ("base_ms", "age_ms", "ms", "us"),
    [
        (0, INT64_MAX // 1000, INT64_MAX // 1000, INT64_MAX // 1000 * 1000),
        (0, INT64_MAX // 1000 + 1, INT64_MAX // 1000 + 1, INT64_MAX),
        (INT64_MAX, 1, INT64_MAX, INT64_MAX),
        (INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX),
        (INT64_MIN, -1, INT64_MIN, INT64_MIN),
        (INT64_MIN, INT64_MAX, -1, -1000),
        (0, -(INT64_MAX // 1000), -(INT64_MAX // 1000), -(INT64_MAX // 1000) * 1000),
        (0, -(INT64_MAX // 1000) - 1, -(INT64_MAX // 1000) - 1, INT64_MIN),
        (1_700_000_000_000_000_000, 0, 1_700_000_000_000_000_000, INT64_MAX),
    ],
)
def test_timestamps_out_of_range_are_limited(
    decoder: ModuleType, base_ms: int, age_ms: int, ms: int, us: int
) -> None:
    """Some producers have sent nanoseconds; that must not make a topic unreadable."""
    batch = raw_batch(raw_record(age=encode_varint(age_ms)), base_timestamp_ms=base_ms)
    assert decoder.decode_records(batch)[0][1] == ms
    assert struct.unpack("q", columns_of(decoder, batch).timestamp_us) == (us,)


def test_header_key_with_invalid_utf8_is_replaced(decoder: ModuleType) -> None:
    keys = [b"\xff\xfe", b"ok", "é".encode(), b"\xed\xa0\x80", b"a\xc3", b""]
    fields = b"".join(encode_varint(len(key)) + key + encode_varint(-1) for key in keys)
    one = raw_record(headers=encode_varint(len(keys)) + fields)
    batch = raw_batch(
        b"".join(
            raw_record(headers=encode_varint(len(keys)) + fields, delta=encode_varint(n))
            for n in range(50)
        ),
        record_count=50,
        last_offset_delta=49,
    )
    expected = tuple((key.decode("utf-8", "replace"), None) for key in keys)
    assert len(one) < sum(len(key.encode()) for key, _ in expected) + 60
    assert {read[4] for read in decoder.decode_records(batch)} == {expected}
    assert {read[4] for read in arrow_tables.tuples(columns_of(decoder, batch))} == {expected}


def test_control_batches_are_skipped(decoder: ModuleType) -> None:
    blob = encode_batch([SimpleRecord(b"k", b"v")]) + marker(1, COMMIT, 1)
    columns = columns_of(decoder, blob)
    assert (columns.count, columns.next_offset) == (1, 2)
    assert len(decoder.decode_records(blob)) == len(decoder.decode_pairs(blob)) == 1
    alone = columns_of(decoder, marker(1, ABORT, 1), from_offset=1)
    assert (alone.count, alone.next_offset) == (0, 2)


def transactional(producer_id: int, base_offset: int, count: int) -> bytes:
    written = [SimpleRecord(str(producer_id).encode(), b"v") for _ in range(count)]
    return encode_batch(
        written,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_aborted_transactions_are_skipped(decoder: ModuleType) -> None:
    """Two interleaved producers; one aborts twice and commits in between."""
    idempotent = encode_batch(
        [SimpleRecord(b"plain", b"v")],
        base_offset=8,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    blob = b"".join(
        [
            transactional(1, 0, 2),  # aborted
            transactional(2, 2, 2),
            transactional(1, 4, 1),  # aborted
            marker(1, ABORT, 5),
            transactional(1, 6, 1),
            marker(1, COMMIT, 7),
            idempotent,
            marker(2, COMMIT, 9),
            transactional(1, 10, 1),  # aborted
            marker(1, ABORT, 11),
            transactional(2, 12, 1),
        ]
    )
    aborted = [(1, 10), (1, 0)]

    def offsets(committed: list[tuple[int, int]] | None, start: int = 0) -> list[int]:
        columns = columns_of(decoder, blob, from_offset=start, read_committed_aborted=committed)
        read = [row[0] for row in arrow_tables.tuples(columns)]
        listed = decoder.decode_records(blob, start, read_committed_aborted=committed)
        assert read == [row[0] for row in listed]
        assert columns.next_offset == 13
        return read

    assert offsets(None) == offsets([]) == [0, 1, 2, 3, 4, 6, 8, 10, 12]
    assert offsets(aborted) == [2, 3, 6, 8, 12]
    assert offsets(aborted, start=3) == [3, 6, 8, 12]
    after = blob[decoder.scan(blob).position[3] :]
    read = decoder.decode_records(after, 5, read_committed_aborted=aborted)
    assert [row[0] for row in read] == [6, 8, 12], "a fetch that begins with the marker"
    assert offsets([(2, 2)]) == [0, 1, 4, 6, 8, 10]
    assert offsets([(7, 0)]) == [0, 1, 2, 3, 4, 6, 8, 10, 12]


def test_compressed_marker_ends_transaction(decoder: ModuleType) -> None:
    end = encode_batch(
        [SimpleRecord(struct.pack(">hh", 0, ABORT), b"")],
        base_offset=1,
        producer_id=1,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
        compression=4,
    )
    blob = transactional(1, 0, 1) + end + transactional(1, 2, 1)
    read = decoder.decode_records(blob, read_committed_aborted=[(1, 0)])
    assert [row[0] for row in read] == [2]


def test_records_above_size_max_are_left_for_next_call(decoder: ModuleType) -> None:
    written = [SimpleRecord(None, bytes(93)) for _ in range(100)]  # 100 bytes each, and then 101
    blob = encode_batch(written[:50]) + encode_batch(written[50:], base_offset=50)
    for size_max, expected in ((0, 1), (199, 1), (250, 2), (5000, 50), (5100, 51), (10**6, 100)):
        columns = columns_of(decoder, blob, size_max=size_max)
        assert abs(columns.count - expected) <= expected // 50
        assert columns.next_offset == columns.count
        arrow_tables.table(columns)
    offset, seen, calls = 0, [], 0
    while offset < 100:
        columns = columns_of(decoder, blob, from_offset=offset, size_max=1500)
        seen += [read[0] for read in arrow_tables.tuples(columns)]
        offset, calls = columns.next_offset, calls + 1
    assert seen == list(range(100))
    assert 6 <= calls <= 8


def test_memory_mapped_file(decoder: ModuleType, tmp_path: Path) -> None:
    blob = log(Random(5), 6)
    path = tmp_path / "segment.log"
    path.write_bytes(blob)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        assert decoder.scan(view) == decoder.scan(blob)
        assert decoder.decode_records([view]) == decoder.decode_records(blob)


def test_uninitialized_buffer_size(decoder: ModuleType) -> None:
    buffer = decoder.uninitialized_buffer(70_000)
    assert (type(buffer), len(buffer)) == (bytearray, 70_000)
    with pytest.raises(ValueError):  # noqa: PT011 - the message of one decoder is Python's
        decoder.uninitialized_buffer(-1)
