"""Recompression of produced batches, if a topic's ``compression.type`` requires another codec.

As in Kafka, a batch that already has the codec is stored as received, whatever its level is.
"""

from __future__ import annotations

import struct
from typing import Final

from partage.log.catalogue.topic_config import LogConfig
from partage.log.disk import Buffer
from partage.log.results import Refusal
from partage.log.validator import (
    ValidatedBatch,
    check_batch_size,
    check_total_size,
    validate_batches,
)
from partage.model.errors import ErrorCode
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    PREFIX,
    Compression,
    whole_batches,
)
from partage.wire.records.checksum import crc32c
from partage.wire.records.compression import DECOMPRESSED_MAX, compress, decompress
from partage.wire.records.decoder import check_records

_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CODEC_BITS: Final = 0x07
_MAGIC_AND_CRC: Final = struct.Struct(">bI")
_ATTRIBUTES: Final = struct.Struct(">h")


def needs_recompression(payload: Buffer, config: LogConfig) -> bool:
    """True if a batch of a Produce request has another codec than its topic requires.

    Damaged bytes need none: the validation refuses them.
    """
    codec = _CODECS.get(config.compression_type)
    if codec is None:  # "producer"
        return False
    try:
        return any(header.compression != codec for _, header in whole_batches(payload))
    except MalformedError:
        return False


def recompress_batches(payload: Buffer, config: LogConfig, now_ms: int) -> Buffer | Refusal:
    """Validate a partition's batches in a Produce request; return them with the topic's codec.

    Decompression and compression take up to a tenth of a second for an ordinary batch of 1 MB, so
    call this in a thread.

    Args:
        payload: One or more batches as received.
        config: The configs of the topic.
        now_ms: Time at which the request arrived, ms since the epoch.

    Returns:
        The batches, or a `Refusal` as `validate_batches` returns it. It stops at the first batch
        that is too large with the new codec, because a few bytes can decompress to gigabytes.
    """
    batches = validate_batches(payload, config, now_ms, from_client=True)
    if isinstance(batches, Refusal):
        return batches
    codec = _CODECS.get(config.compression_type)
    if codec is None:
        return payload
    recompressed, size = list[Buffer](), 0
    for batch in batches:
        try:
            content = _recompress(batch, codec, _level(codec, config))
        except MalformedError as error:
            return Refusal(ErrorCode.INVALID_RECORD, str(error))
        size += len(content)
        refusal = check_batch_size(len(content), config) or check_total_size(size, config)
        if refusal is not None:
            return refusal
        recompressed.append(content)
    return b"".join(recompressed)


def _recompress(batch: ValidatedBatch, codec: Compression, level: int | None) -> Buffer:
    """Return the batch with another codec; its records and other fields do not change."""
    header, content = batch.header, batch.content
    if header.compression == codec:
        return content
    records = decompress(header.compression, content[HEADER_SIZE:], DECOMPRESSED_MAX)
    if header.compression:  # otherwise the validation has checked them
        check_records(records, header.record_count)
    packed = compress(codec, records, level)
    fields_at = CRC_FROM + _ATTRIBUTES.size
    attributes = _ATTRIBUTES.pack(header.attributes & ~_CODEC_BITS | codec)
    checked = attributes + content[fields_at:HEADER_SIZE]
    length = HEADER_SIZE + len(packed) - LENGTH_OVERHEAD
    prefix = PREFIX.pack(header.base_offset, length, header.leader_epoch)
    crc = crc32c(packed, crc32c(checked))
    return prefix + _MAGIC_AND_CRC.pack(header.magic, crc) + checked + packed


def _level(codec: Compression, config: LogConfig) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.ZSTD:
            return config.compression_zstd_level
    return None
