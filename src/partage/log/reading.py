"""Walking over the batches of a segment file, and checking what was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from partage.log.damage import DamagedLog, UnreadableBatch
from partage.log.disk import Buffer, Disk
from partage.log.outcomes import Slice
from partage.wire.primitives import Malformed
from partage.wire.records.batch import HEADER_SIZE, BatchHeader, checksum, parse_header
from partage.wire.records.columns import RecordTuple
from partage.wire.records.decode import decode_records

NEAR_BYTES: Final = 8192  # one read for a look-up between two entries of an index
FAR_BYTES: Final = 1 << 20  # for walks over whole segments


class BatchRead(NamedTuple):
    """A whole batch, and where it was read."""

    path: str
    position: int
    header: BatchHeader
    content: bytes


def headers(
    disk: Disk, path: str, position: int, end: int, read_bytes: int = NEAR_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from ``position`` up to ``end``; only headers are read,
    and checksums are not looked at.

    Raises:
        DamagedLog: there is no batch where one should be, or it reaches beyond ``end``.
    """
    while position < end:
        chunk, at = disk.read(path, position, min(read_bytes, end - position)), 0
        while at == 0 or len(chunk) - at >= HEADER_SIZE:
            header = _header(path, position, chunk, at, end)
            yield position + at, header
            at += header.size
        position += at


def batches(disk: Disk, path: str, end: int) -> Iterator[BatchRead]:
    """All batches of a file up to ``end``, read in large pieces; raises as `headers`."""
    position, read_bytes = 0, FAR_BYTES
    while position < end:
        chunk, at = disk.read(path, position, min(read_bytes, end - position)), 0
        while at == 0 or len(chunk) - at >= HEADER_SIZE:
            header = _header(path, position, chunk, at, end)
            if header.size > len(chunk) - at:
                break
            yield BatchRead(path, position + at, header, chunk[at : at + header.size])
            at += header.size
        if not at and read_bytes >= header.size:
            raise DamagedLog(path, position, "the file ends within the batch")
        read_bytes = FAR_BYTES if at else header.size
        position += at


def records_of(batch: BatchRead, from_offset: int = 0) -> list[RecordTuple]:
    """The batch's records from an offset on.

    Raises:
        DamagedLog: it is not what was written.
        UnreadableBatch: it is.
    """
    try:
        return decode_records(batch.content, from_offset)
    except Malformed as error:
        header, content = batch.header, batch.content
        if len(content) == header.size and header.crc == checksum(content, 0, header.size):
            raise UnreadableBatch(
                f"the producer sent a batch, now at offset {header.base_offset}, that cannot be "
                f"unpacked: {error}"
            ) from None
        raise DamagedLog(batch.path, batch.position, str(error)) from None


def fault_in_slice(part: Slice, content: Buffer) -> str | None:
    """What is wrong with bytes read for a slice; `None` if nothing is.

    Looks at the first batch: whether it is the expected one, and its checksum; the client checks
    the others (``scan`` of `partage.wire.records` checks all at 4 GB/s). A fault can mean that a
    compaction was swapped in between: locate again, and only a fault that stays is damage.
    """
    try:
        header = parse_header(content)
    except Malformed as error:
        return str(error)
    if header.base_offset != part.base_offset:
        return f"offset {header.base_offset} stands where {part.base_offset} should"
    if header.size <= len(content) and header.crc != checksum(content, 0, header.size):
        return f"the batch at offset {header.base_offset} does not match its checksum"
    return None


def _header(path: str, position: int, chunk: bytes, at: int, end: int) -> BatchHeader:
    try:
        header = parse_header(chunk, at)
    except Malformed as error:
        raise DamagedLog(path, position + at, str(error)) from None
    if header.size > end - position - at:
        raise DamagedLog(path, position + at, "the batch reaches beyond the segment's end")
    return header
