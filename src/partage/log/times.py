"""Finding offsets by time. These look-ups read from the disk: a few KB, and one whole batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from partage.log.disk import Disk
from partage.log.indexing import Largest
from partage.log.reading import BatchRead, headers, records_of
from partage.log.segment import Segment
from partage.wire.records.batch import BatchHeader


class TimedOffset(NamedTuple):
    """A record's offset and its time in ms since the epoch."""

    offset: int
    timestamp_ms: int


class Readable(NamedTuple):
    """A segment as far as readers may see it."""

    segment: Segment
    size: int
    largest_seen: Largest | None = None  # where not all of the segment is to be seen

    def largest(self, disk: Disk) -> Largest:
        """The largest timestamp in this part, -1 where there is none."""
        return self.largest_seen or self.segment.largest(disk)


def first_at_least(
    disk: Disk, readable: Iterable[Readable], timestamp_ms: int, from_offset: int
) -> TimedOffset | None:
    """The first record at or after ``from_offset`` whose time is ``timestamp_ms`` or later."""
    for part in readable:
        if part.largest(disk).timestamp_ms >= timestamp_ms:
            found = _first_in(disk, part, timestamp_ms, from_offset)
            if found:
                return found
    return None


def latest(disk: Disk, readable: Iterable[Readable], from_offset: int) -> TimedOffset | None:
    """The first of the records with the largest time; `None` where no record has one."""
    part = max(readable, key=lambda part: part.largest(disk).timestamp_ms, default=None)
    if part is None or (largest := part.largest(disk)).timestamp_ms < 0:
        return None
    return _first_in(disk, part, largest.timestamp_ms, from_offset)


def _first_in(
    disk: Disk, part: Readable, timestamp_ms: int, from_offset: int
) -> TimedOffset | None:
    segment, start = part.segment, _start(disk, part, timestamp_ms, from_offset)
    for position, header in headers(disk, segment.path, start, part.size):
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
            found = _first_record(disk, segment.path, position, header, timestamp_ms, from_offset)
            if found:
                return found
    return None


def _start(disk: Disk, part: Readable, timestamp_ms: int, from_offset: int) -> int:
    """A position before the first batch of this time, less than an index interval before it.

    The first entry that is late enough names the batch with the largest time up to the entry; a
    batch that is late enough already may stand before that one, but not before the previous entry
    of the offset index, up to which all times are smaller.
    """
    base_offset, indexes = part.segment.base_offset, part.segment.indexes(disk)
    relative = indexes.times.first_at_least(timestamp_ms)
    if relative is None:
        relative = part.largest(disk).last_offset - base_offset
    return indexes.offsets.floor(max(relative - 1, from_offset - base_offset))


def _first_record(
    disk: Disk,
    path: str,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    from_offset: int,
) -> TimedOffset | None:
    content = disk.read(path, position, header.size)
    for offset, time_ms, *_ in records_of(BatchRead(path, position, header, content), from_offset):
        if time_ms >= timestamp_ms:
            return TimedOffset(offset, time_ms)
    return None
