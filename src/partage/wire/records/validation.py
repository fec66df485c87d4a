"""A broker's checks of a batch that a producer sent.

The rules are those of Kafka's LogValidator, with two differences. Kafka renumbers records whose
offset deltas are out of order; Partage refuses them. No current client sends such records. Kafka
also decompresses every batch, and Partage does not. So a producer can store a compressed batch that
no consumer can read.
"""

from __future__ import annotations

from partage.wire.primitives import MalformedError
from partage.wire.records.batch import HEADER_SIZE, BatchHeader, Compression, checksum
from partage.wire.records.columns import RECORD_SIZE_MIN
from partage.wire.records.compression import DECOMPRESSED_MAX
from partage.wire.records.decoder import check_records
from partage.wire.types import Buffer


class CorruptBatchError(MalformedError):
    """Raised for a batch damaged in transit: CORRUPT_MESSAGE instead of INVALID_RECORD."""


def validate_batch(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Check that the batch at ``pos`` with this ``header`` may be stored.

    Checks every record of an uncompressed batch, and none of a compressed one.

    Raises:
        CorruptBatchError: The batch extends beyond the buffer, or its checksum does not match.
        MalformedError: A producer must not send such a batch; the message says why.
    """
    size = header.size
    if not HEADER_SIZE <= size <= len(buf) - pos:
        raise CorruptBatchError(
            f"a record batch of {size} bytes at byte {pos} does not fit {len(buf)} bytes"
        )
    if checksum(buf, pos, size) != header.crc:
        raise CorruptBatchError(f"the record batch at byte {pos} does not match its checksum")
    _validate_header(header)
    compression = header.compression
    if compression > Compression.ZSTD:
        raise MalformedError(f"unknown compression codec {compression}")
    if header.record_count > DECOMPRESSED_MAX // RECORD_SIZE_MIN:
        raise MalformedError(f"a record batch cannot hold {header.record_count} records")
    if not compression:
        check_records(memoryview(buf)[pos + HEADER_SIZE : pos + size], header.record_count)


def _validate_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise MalformedError(f"a produced batch must begin at offset 0, not {header.base_offset}")
    if header.record_count < 1:
        raise MalformedError(
            f"a produced batch must have at least one record, not {header.record_count}"
        )
    if header.record_count != header.last_offset_delta + 1:
        raise MalformedError(
            f"a batch of {header.record_count} records must not have a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.is_control:
        raise MalformedError("only a broker may write control batches")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise MalformedError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}"
        )
    if header.is_transactional and header.producer_id < 0:
        raise MalformedError("a transactional batch needs a producer id")
