"""Offset look-up by timestamp (ListOffsets).

A look-up reads the disk, usually a few KB of headers and one batch. If the batch that an index
entry names lies before the log start offset, it reads all headers of the segment. It is safe in a
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from partage.log.disk import Disk
from partage.log.errors import UnreadableBatchError
from partage.log.segments.batch_reader import StoredBatch, decode_batch, read_headers
from partage.log.segments.segment import Segment
from partage.log.segments.segment_indexes import MaxTimestamp
from partage.wire.records.batch import BatchHeader


class TimestampAndOffset(NamedTuple):
    """A record's offset and its timestamp in ms since the epoch."""

    offset: int
    timestamp_ms: int


TimestampLookup = Callable[[], TimestampAndOffset | None]


class ReadableSegment(NamedTuple):
    """The part of a segment that consumers may read."""

    segment: Segment
    size: int
    #: Set if consumers may not read the whole segment.
    visible_max_timestamp: MaxTimestamp | None = None

    def max_timestamp(self, disk: Disk) -> MaxTimestamp:
        """Return the largest timestamp in this part, -1 if it has none."""
        return self.visible_max_timestamp or self.segment.max_timestamp(disk)


def find_by_timestamp(
    disk: Disk, readable: Iterable[ReadableSegment], timestamp_ms: int, from_offset: int
) -> TimestampAndOffset | None:
    """Return the first record at or after ``from_offset`` with this timestamp or a later one."""
    for part in readable:
        if part.max_timestamp(disk).timestamp_ms >= timestamp_ms:
            found = _first_in(disk, part, timestamp_ms, from_offset)
            if found:
                return found
    return None


def find_max_timestamp(
    disk: Disk, readable: Iterable[ReadableSegment], from_offset: int
) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp; None if no record has one."""
    found: TimestampAndOffset | None = None
    for part in sorted(readable, key=lambda part: -part.max_timestamp(disk).timestamp_ms):
        largest_ms = part.max_timestamp(disk).timestamp_ms
        if largest_ms < 0 or (found and found.timestamp_ms >= largest_ms):
            break
        here = _first_in(disk, part, largest_ms, from_offset)
        if here is None and part.segment.base_offset < from_offset:
            here = _latest_from(disk, part, from_offset)
        if here and (found is None or here.timestamp_ms > found.timestamp_ms):
            found = here
    return found


def _latest_from(disk: Disk, part: ReadableSegment, from_offset: int) -> TimestampAndOffset | None:
    """Return the record with the largest timestamp at or after ``from_offset`` in one segment.

    For a segment whose largest timestamp lies before ``from_offset``.
    """
    path, found, largest_ms = part.segment.path, None, -1
    start = part.segment.indexes(disk).offsets.lookup(from_offset - part.segment.base_offset)
    for position, header in read_headers(disk, path, start, part.size):
        if header.last_offset < from_offset:
            continue
        time_ms = header.max_timestamp_ms
        if header.base_offset < from_offset:
            timed = _timed(disk, path, position, header, from_offset)
            time_ms = max((one.timestamp_ms for one in timed), default=-1)
        if time_ms > largest_ms:
            found, largest_ms = (position, header), time_ms
    return _first_record(disk, path, *found, largest_ms, from_offset) if found else None


def _first_in(
    disk: Disk, part: ReadableSegment, timestamp_ms: int, from_offset: int
) -> TimestampAndOffset | None:
    segment, start = part.segment, _start(disk, part, timestamp_ms, from_offset)
    for position, header in read_headers(disk, segment.path, start, part.size):
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
            found = _first_record(disk, segment.path, position, header, timestamp_ms, from_offset)
            if found:
                return found
    return None


def _start(disk: Disk, part: ReadableSegment, timestamp_ms: int, from_offset: int) -> int:
    """Return a position at most an index interval before the first batch of this timestamp.

    The first late enough entry names the batch with the largest timestamp up to that entry. A batch
    that is late enough may precede that one. It cannot precede the previous entry of the offset
    index, because all timestamps up to there are smaller.
    """
    base_offset, indexes = part.segment.base_offset, part.segment.indexes(disk)
    relative = indexes.times.first_at_least(timestamp_ms)
    if relative is None:
        relative = part.max_timestamp(disk).last_offset - base_offset
    return indexes.offsets.lookup(max(relative - 1, from_offset - base_offset))


def _first_record(
    disk: Disk,
    path: str,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    from_offset: int,
) -> TimestampAndOffset | None:
    timed = _timed(disk, path, position, header, from_offset)
    return next((one for one in timed if one.timestamp_ms >= timestamp_ms), None)


def _timed(
    disk: Disk, path: str, position: int, header: BatchHeader, from_offset: int
) -> list[TimestampAndOffset]:
    """Return the records of a batch from an offset on.

    For a batch that cannot be decompressed, return one entry with the batch's largest timestamp. A
    transaction marker counts as a record, as in Kafka.
    """
    if header.is_control:
        return [TimestampAndOffset(header.base_offset, header.max_timestamp_ms)]
    batch = StoredBatch(path, position, header, disk.read(path, position, header.size))
    try:
        records = decode_batch(batch, from_offset)
    except UnreadableBatchError:
        return [TimestampAndOffset(max(header.base_offset, from_offset), header.max_timestamp_ms)]
    return [TimestampAndOffset(offset, time_ms) for offset, time_ms, *_ in records]
