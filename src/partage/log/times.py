"""Finding offsets by time. These look-ups read from the disk: as a rule a few KB and one batch, but
all headers of a segment where what its index names is deleted. They may be done in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from partage.log.damage import UnreadableBatch
from partage.log.disk import Disk
from partage.log.indexing import Largest
from partage.log.reading import BatchRead, headers, records_of
from partage.log.segment import Segment
from partage.wire.records.batch import BatchHeader


class TimedOffset(NamedTuple):
    """A record's offset and its time in ms since the epoch."""

    offset: int
    timestamp_ms: int


Search = Callable[[], TimedOffset | None]


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
    found: TimedOffset | None = None
    for part in sorted(readable, key=lambda part: -part.largest(disk).timestamp_ms):
        largest_ms = part.largest(disk).timestamp_ms
        if largest_ms < 0 or (found and found.timestamp_ms >= largest_ms):
            break
        here = _first_in(disk, part, largest_ms, from_offset)
        if here is None and part.segment.base_offset < from_offset:
            here = _latest_from(disk, part, from_offset)
        if here and (found is None or here.timestamp_ms > found.timestamp_ms):
            found = here
    return found


def _latest_from(disk: Disk, part: Readable, from_offset: int) -> TimedOffset | None:
    """The same for a segment whose largest time stands before ``from_offset``."""
    path, found, largest_ms = part.segment.path, None, -1
    start = part.segment.indexes(disk).offsets.floor(from_offset - part.segment.base_offset)
    for position, header in headers(disk, path, start, part.size):
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
    timed = _timed(disk, path, position, header, from_offset)
    return next((one for one in timed if one.timestamp_ms >= timestamp_ms), None)


def _timed(
    disk: Disk, path: str, position: int, header: BatchHeader, from_offset: int
) -> list[TimedOffset]:
    """The records of a batch from an offset on; of one that cannot be unpacked what it says."""
    batch = BatchRead(path, position, header, disk.read(path, position, header.size))
    try:
        records = records_of(batch, from_offset)
    except UnreadableBatch:
        return [TimedOffset(max(header.base_offset, from_offset), header.max_timestamp_ms)]
    return [TimedOffset(offset, time_ms) for offset, time_ms, *_ in records]
