"""Recompression of produced batches by the topic's ``compression.type``."""

from __future__ import annotations

import pytest

from partage.log import recompression
from partage.log.catalogue.topic_config import LogConfig
from partage.log.disk import Buffer
from partage.log.recompression import needs_recompression, recompress_batches
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER_SIZE,
    Compression,
    checksum,
    parse_header,
    whole_batches,
)
from partage.wire.records.compression import decompress
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import NOW_MS, Host, batch, unreadable

CODECS = {codec.name.lower().replace("none", "uncompressed"): codec for codec in Compression}
RECORDS = [
    SimpleRecord(b"k", b"v" * 500, [("h", b"x"), ("n", None)], NOW_MS),
    SimpleRecord(None, None, (), NOW_MS + 7),
    SimpleRecord(b"", b"", (), NOW_MS + 3),
]


def config_of(name: str, **configs: object) -> LogConfig:
    texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
    return LogConfig.from_configs({"compression.type": name, **texts})


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("name", CODECS)
def test_batch_gets_codec_of_topic(name: str, source: Compression) -> None:
    payload = encode_batch(
        RECORDS, compression=source, producer_id=7, producer_epoch=2, base_sequence=5
    )
    config = config_of(name)
    assert needs_recompression(payload, config) == (CODECS[name] != source)
    content = recompress_batches(payload, config, NOW_MS)
    assert isinstance(content, bytes)
    before, after = parse_header(payload), parse_header(content)
    assert after.compression == CODECS[name]
    assert after._replace(length=0, crc=0, attributes=0) == before._replace(
        length=0, crc=0, attributes=0
    )
    assert decode_records(content) == decode_records(payload)
    if CODECS[name] == source:
        assert content == payload
    host = Host(compression_type=name)
    host.write(content)
    assert [record[3] for record in host.records()] == [b"v" * 500, None, b""]


def test_batch_of_codec_producer_is_stored_as_received() -> None:
    for codec in Compression:
        assert not needs_recompression(batch(b"a", compression=codec), config_of("producer"))


def test_each_batch_of_a_request_is_checked() -> None:
    payload = batch(b"a", compression=Compression.LZ4) + batch(b"b", compression=Compression.ZSTD)
    config = config_of("lz4")
    assert needs_recompression(payload, config)
    content = recompress_batches(payload, config, NOW_MS)
    assert isinstance(content, bytes)
    assert [header.compression for _, header in whole_batches(content)] == [Compression.LZ4] * 2


@pytest.mark.parametrize(("name", "low", "high"), [("gzip", 1, 9), ("zstd", -100, 19)])
def test_level_of_topic_is_used(name: str, low: int, high: int) -> None:
    words = b" ".join(b"%d" % (n * n % 977) for n in range(20_000))
    sizes = []
    for level in (low, high):
        config = config_of(name, **{f"compression_{name}_level": level})
        content = recompress_batches(batch(words), config, NOW_MS)
        assert isinstance(content, bytes)
        assert decode_records(content)[0][3] == words
        sizes.append(len(content))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (unreadable(batch(b"a" * 99, compression=Compression.GZIP)), ErrorCode.INVALID_RECORD),
        (batch(b"a" * 99) + b"more", ErrorCode.INVALID_RECORD),
        (batch(b"a", at_ms=NOW_MS + 10**9), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_invalid_batch_is_refused(payload: bytes, code: ErrorCode) -> None:
    refusal = recompress_batches(payload, config_of("zstd"), NOW_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


def test_wrong_record_count_in_compressed_batch_is_refused() -> None:
    """The checksum is valid, but consumers could not read the batch."""
    one = batch(b"a", b"b", compression=Compression.GZIP)
    count = encode_batch([SimpleRecord(None, b"a")] * 3, compression=Compression.GZIP)
    header, other = parse_header(one), parse_header(count)
    assert header.record_count != other.record_count
    forged = bytearray(count[:HEADER_SIZE] + one[HEADER_SIZE:])
    forged[8:12] = one[8:12]
    forged[CRC_FROM - 4 : CRC_FROM] = checksum(forged, 0, len(forged)).to_bytes(4, "big")
    refusal = recompress_batches(bytes(forged), config_of("zstd"), NOW_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("max_message_bytes", ErrorCode.MESSAGE_TOO_LARGE),
        ("segment_bytes", ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_recompression_stops_at_first_batch_beyond_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, code: ErrorCode
) -> None:
    """Otherwise a request of megabytes, in many batches, decompresses to gigabytes."""
    decompressed = list[int]()

    def count(codec: int, payload: Buffer, size_max: int) -> bytes:
        records = decompress(codec, payload, size_max)
        decompressed.append(len(records))
        return records

    monkeypatch.setattr(recompression, "decompress", count)
    payload = batch(bytes(50_000), compression=Compression.ZSTD) * 10
    config = config_of("uncompressed", **{limit: 20_000})
    refusal = recompress_batches(payload, config, NOW_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert len(decompressed) == 1
