"""The header of a record batch, message format v2 (KIP-98), and iteration over batches.

A batch is a header of 61 bytes followed by its records, either uncompressed or compressed as a
whole. The broker sets base offset, length and leader epoch, which the checksum does not cover.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from partage.wire.primitives import MalformedError
from partage.wire.records.checksum import crc32c
from partage.wire.types import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size  # 61
# Fields that the broker sets: base offset, length, leader epoch.
PREFIX: Final = struct.Struct(">qii")
LENGTH_OVERHEAD: Final = 12  # the length field excludes the base offset and itself
CRC_FROM: Final = 21  # the checksum covers everything from the attributes on
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1
TRANSACTIONAL: Final = 0x10  # the bit in the attributes


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header of a batch, with its fields as stored. Timestamps are ms since the epoch."""

    base_offset: int
    length: int  # as stored: excludes the base offset and the length itself
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the complete batch in bytes."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, which compaction may have removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Number of the codec; see `Compression`."""
        return self.attributes & 0x07

    @property
    def is_log_append_time(self) -> bool:
        """True if all records carry the broker's time, ``max_timestamp_ms``."""
        return bool(self.attributes & 0x08)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the batch holds a transaction marker instead of records."""
        return bool(self.attributes & 0x20)


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Parse the header at ``pos`` and check its magic and length.

    The batch may extend beyond the buffer: compare ``pos + header.size`` with its length.

    Raises:
        MalformedError: Fewer than 61 bytes, a magic other than 2, or an invalid length.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise MalformedError(
            f"a record batch at byte {pos} is shorter than a header of {HEADER_SIZE} bytes"
        )
    header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    if header.magic != MAGIC:
        raise MalformedError(
            f"record batch at byte {pos} has format {header.magic}, expected {MAGIC}"
        )
    if header.length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise MalformedError(f"record batch at byte {pos} declares a length of {header.length}")
    return header


def checksum(buf: Buffer, pos: int, size: int) -> int:
    """Return the CRC-32C of the batch of ``size`` bytes at ``pos``."""
    return int(crc32c(memoryview(buf)[pos + CRC_FROM : pos + size]))


def whole_batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each complete batch in ``buf``.

    Ignores an incomplete batch at the end, because brokers truncate a fetch response anywhere. Does
    not verify checksums.

    Raises:
        MalformedError: As `parse_header`.
    """
    pos, end = 0, len(buf)
    while end - pos >= HEADER_SIZE:
        header = parse_header(buf, pos)
        if header.size > end - pos:
            return
        yield pos, header
        pos += header.size
