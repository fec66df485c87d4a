"""Reading a segment from its start, checksums and all: what start-up does after a crash."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from partage.log.disk import Buffer, Disk
from partage.log.producers import Producers
from partage.log.reading import FAR_BYTES, headers
from partage.log.segment import ActiveSegment, Segment
from partage.wire.records.batch import NO_PRODUCER, parse_header
from partage.wire.records.columns import Scan, ScanReason
from partage.wire.records.decode import scan

CHUNK_BYTES: Final = 8 << 20
_CONTROL: Final = 0x20

_FAULTS: Final[dict[ScanReason, str]] = {
    "incomplete": "the last batch is cut off",
    "magic": "there is no record batch here",
    "length": "the batch's length cannot be right",
    "crc": "the batch does not match its checksum",
    "order": "the batch's base offset is not the one due",
    "count": "the batch's record count cannot be right",
}


class Fault(NamedTuple):
    """The first byte of a file that does not belong to a whole and sound batch, and why."""

    position: int
    reason: str


def first_fault(batches: Buffer) -> Fault | None:
    """Where whole batches, read from a log, are not what was written; `None` if they are."""
    found = scan(batches)
    return None if found.reason == "end" else Fault(found.stop, _FAULTS[found.reason])


def scan_segment(
    disk: Disk,
    segment: ActiveSegment,
    file_size: int,
    producers: Producers,
    now_ms: int,
    *,
    dense: bool,
) -> tuple[int, Fault | None]:
    """Fill ``segment`` and ``producers`` from the sound batches of the segment's file.

    Returns the offset after them, and what ended them before the file did. ``dense``: every
    batch must begin where the one before it ended, as it does before a compaction.
    """
    offset, read_bytes = segment.base_offset, CHUNK_BYTES
    while segment.size < file_size:
        chunk = disk.read(segment.path, segment.size, min(read_bytes, file_size - segment.size))
        is_last = segment.size + len(chunk) >= file_size
        found = _scan(chunk, offset, dense)
        if found.count:
            segment.add(found.position, found.last_offset, found.max_timestamp_ms, found.stop)
            _remember(producers, found, now_ms)
            offset = found.last_offset[-1] + 1
        elif found.reason == "incomplete" and not is_last:
            read_bytes = parse_header(chunk).size  # a batch larger than a chunk, if it is one
            if read_bytes > file_size - segment.size:
                return offset, Fault(segment.size, "the batch reaches beyond the file's end")
        if found.reason != "end" and (is_last or found.reason != "incomplete"):
            return offset, Fault(segment.size, _FAULTS[found.reason])
    return offset, None


def replay_producers(disk: Disk, segment: Segment, producers: Producers, now_ms: int) -> None:
    """Bring ``producers`` from a closed segment's base to its end; reads all its headers."""
    for _, header in headers(disk, segment.path, 0, segment.size, FAR_BYTES):
        producers.remember(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            is_control=header.is_control,
            seen_ms=now_ms,
        )


def _remember(producers: Producers, found: Scan, now_ms: int) -> None:
    """The same for batches that were scanned."""
    if max(found.producer_id) == NO_PRODUCER:
        return
    rows = zip(
        found.producer_id,
        found.producer_epoch,
        found.base_sequence,
        found.base_offset,
        found.last_offset,
        found.attributes,
        strict=True,
    )
    for *batch, attributes in rows:
        producers.remember(*batch, is_control=bool(attributes & _CONTROL), seen_ms=now_ms)


def _scan(chunk: bytes, offset: int, dense: bool) -> Scan:
    """The sound batches at the start of ``chunk``, up to the first gap if there may be none."""
    found = scan(chunk, offset_min=offset)
    gap = _first_gap(found, offset) if dense else None
    if gap is None:
        return found
    before = memoryview(chunk)[: found.position[gap]]
    return replace(scan(before, offset_min=offset), reason="order")


def _first_gap(found: Scan, offset: int) -> int | None:
    """The first batch that does not begin where the one before it ended."""
    last_offsets, base_offsets = found.last_offset, found.base_offset
    records = sum(last_offsets) - sum(base_offsets) + found.count
    if not found.count or records == last_offsets[-1] + 1 - offset:
        return None  # they rise, so as many offsets as there are between the ends leave no gap
    due = offset
    for row, base_offset in enumerate(base_offsets):
        if base_offset != due:
            return row
        due = last_offsets[row] + 1
    return None
