"""Reads of batches from segment files, and checks of the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from partage.log.disk import Buffer, Disk
from partage.log.errors import DamagedLogError, UnreadableBatchError
from partage.log.results import Slice
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import HEADER_SIZE, BatchHeader, checksum, parse_header
from partage.wire.records.columns import RecordTuple
from partage.wire.records.decoder import decode_records

LOOKUP_READ_BYTES: Final = 8192  # one read between two index entries
SCAN_READ_BYTES: Final = 1 << 20  # for scans of whole segments


class StoredBatch(NamedTuple):
    """A complete batch and the place where it was read."""

    path: str
    position: int
    header: BatchHeader
    content: bytes


def read_headers(
    disk: Disk, path: str, position: int, end: int, read_bytes: int = LOOKUP_READ_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from ``position`` up to ``end``.

    Reads only headers, and does not verify checksums.

    Raises:
        DamagedLogError: There is no valid header at a batch boundary, or a batch reaches beyond
            ``end``.
    """
    while position < end:
        chunk, at = disk.read(path, position, min(read_bytes, end - position)), 0
        while at == 0 or len(chunk) - at >= HEADER_SIZE:
            header = _header(path, position, chunk, at, end)
            yield position + at, header
            at += header.size
        position += at


def read_batches(disk: Disk, path: str, end: int) -> Iterator[StoredBatch]:
    """Yield all batches of a file up to ``end``, read in large chunks; raise as `read_headers`."""
    position, read_bytes = 0, SCAN_READ_BYTES
    while position < end:
        chunk, at = disk.read(path, position, min(read_bytes, end - position)), 0
        while at == 0 or len(chunk) - at >= HEADER_SIZE:
            header = _header(path, position, chunk, at, end)
            if header.size > len(chunk) - at:
                break
            yield StoredBatch(path, position + at, header, chunk[at : at + header.size])
            at += header.size
        if not at and read_bytes >= header.size:
            raise DamagedLogError(path, position, "the batch extends beyond the end of the file")
        read_bytes = SCAN_READ_BYTES if at else header.size
        position += at


def decode_batch(batch: StoredBatch, from_offset: int = 0) -> list[RecordTuple]:
    """Return the batch's records from an offset on.

    Raises:
        DamagedLogError: The batch is damaged.
        UnreadableBatchError: The batch has a valid checksum and cannot be decompressed.
    """
    try:
        return decode_records(batch.content, from_offset)
    except MalformedError as error:
        header, content = batch.header, batch.content
        if len(content) == header.size and header.crc == checksum(content, 0, header.size):
            raise UnreadableBatchError(
                f"the batch at offset {header.base_offset} is stored as its producer sent it, but "
                f"cannot be decompressed: {error}"
            ) from None
        raise DamagedLogError(batch.path, batch.position, str(error)) from None


def check_slice(part: Slice, content: Buffer) -> str | None:
    """Return what is wrong with the bytes read for a slice; None if they are valid.

    Checks only the first batch: its base offset, size and checksum. The client checks the other
    batches. (``scan`` of `partage.wire.records` verifies all at 4 GB/s.) A fault can mean that a
    compaction replaced the segment: locate the offset again. Only a repeated fault is damage.
    """
    try:
        header = parse_header(content)
    except MalformedError as error:
        return str(error)
    if header.base_offset != part.base_offset:
        return f"found a batch at offset {header.base_offset}, expected offset {part.base_offset}"
    if header.size != part.first_size:
        return f"the batch at offset {header.base_offset} does not end where the next one begins"
    if header.size <= len(content) and header.crc != checksum(content, 0, header.size):
        return (
            f"the batch of offsets {header.base_offset} to {header.last_offset} does not match its "
            "checksum"
        )
    return None


def _header(path: str, position: int, chunk: bytes, at: int, end: int) -> BatchHeader:
    try:
        header = parse_header(chunk, at)
    except MalformedError as error:
        raise DamagedLogError(path, position + at, str(error)) from None
    if header.size > end - position - at:
        raise DamagedLogError(
            path, position + at, "the batch extends beyond the end of the segment"
        )
    return header
