"""Encoded batches, read by the decoder."""

from __future__ import annotations

import struct
from random import Random
from types import ModuleType

import pytest

from partage.wire.records.batch import NO_TIMESTAMP, Compression, checksum, parse_header
from partage.wire.records.encoder import SimpleRecord, encode_batch, encode_pairs

from .batch_factory import CODECS, NOW_MS, as_tuples, records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500])
def test_decoded_batch_equals_records(decoder: ModuleType, codec: int, count: int) -> None:
    written = records(Random(count), count)
    batch = encode_batch(written, base_offset=7, compression=codec)
    header = parse_header(batch)
    assert header.size == len(batch)
    assert header.compression == codec
    assert checksum(batch, 0, len(batch)) == header.crc
    assert (header.record_count, header.last_offset_delta) == (count, count - 1)
    assert header.base_timestamp_ms == written[0].timestamp_ms
    assert header.max_timestamp_ms == max(made.timestamp_ms for made in written)
    assert decoder.decode_records(batch) == as_tuples(written, 7)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 8180, 8191, 8192, 8193, 2_000_000])
def test_lengths_around_varint_limits(decoder: ModuleType, size: int) -> None:
    written = [
        SimpleRecord(bytes(size), None),
        SimpleRecord(None, bytes(size)),
        SimpleRecord(b"", bytes(size)),
    ]
    assert decoder.decode_records(encode_batch(written)) == as_tuples(written)
    pairs = [(made.key, made.value) for made in written]
    assert decoder.decode_pairs(encode_pairs(pairs, NOW_MS)) == pairs


@pytest.mark.parametrize("age", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**40), 2**62])
def test_timestamps_around_varint_limits(decoder: ModuleType, age: int) -> None:
    written = [SimpleRecord(b"k", b"v", (), 1000), SimpleRecord(b"k", b"v", (), 1000 + age)]
    batch = encode_batch(written)
    assert decoder.decode_records(batch) == as_tuples(written)
    assert parse_header(batch).max_timestamp_ms == 1000 + max(0, age)


def test_offsets_around_varint_limits(decoder: ModuleType) -> None:
    deltas = [0, 1, 63, 64, 8191, 8192, 10**6, 2**31 - 1]
    written = [SimpleRecord(b"k", b"v", offset_delta=delta) for delta in deltas]
    batch = encode_batch(written, base_offset=5)
    assert [read[0] for read in decoder.decode_records(batch)] == [5 + delta for delta in deltas]
    assert parse_header(batch).last_offset_delta == 2**31 - 1


def test_omitted_offset_follows_previous_one() -> None:
    batch = encode_batch(
        [SimpleRecord(b"a", b""), SimpleRecord(b"b", b"", (), -1, 5), SimpleRecord(b"c", b"")]
    )
    assert parse_header(batch).last_offset_delta == 6


def test_pairs_share_one_timestamp() -> None:
    pairs = [(b"k", b"v"), (None, b""), (b"", None)] * 3000
    written = [SimpleRecord(key, value, (), NOW_MS) for key, value in pairs]
    for codec in CODECS:
        options = {"base_offset": 9, "compression": codec, "leader_epoch": 2}
        assert encode_pairs(pairs, NOW_MS, **options) == encode_batch(written, **options)


def test_header_fields_are_encoded() -> None:
    batch = encode_batch(
        [SimpleRecord(b"k", b"v", (), 10)],
        base_offset=2**50,
        compression=Compression.LZ4,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        leader_epoch=12,
        is_control=True,
        is_transactional=True,
        last_offset_delta=4,
        append_time_ms=99,
    )
    header = parse_header(batch)
    assert header._replace(crc=0) == (
        *(2**50, len(batch) - 12, 12, 2, 0),
        *(3 | 8 | 16 | 32, 4, 10, 99, 2**40, 7, 2**31 - 1, 1),
    )
    assert header.is_control
    assert header.is_transactional
    assert header.is_log_append_time
    assert header.next_offset == 2**50 + 5


def test_batch_without_records_keeps_its_range(decoder: ModuleType) -> None:
    batch = encode_batch([], base_offset=10, producer_id=3, last_offset_delta=4)
    header = parse_header(batch)
    assert (header.record_count, header.next_offset) == (0, 15)
    assert header.base_timestamp_ms == header.max_timestamp_ms == NO_TIMESTAMP
    assert decoder.decode_records(batch) == []
    assert decoder.scan(batch).last_offset.tolist() == [14]


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="last offset delta"):
        encode_batch([])
    with pytest.raises(ValueError, match="needs at least one record"):
        encode_pairs([], NOW_MS)
    with pytest.raises(ValueError, match="codec 6"):
        encode_batch([SimpleRecord(b"k", b"v")], compression=6)
    with pytest.raises(struct.error):
        encode_batch([SimpleRecord(b"k", b"v")], producer_epoch=2**15)
