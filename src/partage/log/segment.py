"""A segment: one file of batches, and finding a batch in it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.log.disk import Disk
from partage.log.index import OFFSET_ENTRY, TIME_ENTRY
from partage.log.indexing import Indexes, Largest, read_largest
from partage.log.layout import LOG, file_of
from partage.log.reading import headers
from partage.wire.records.batch import NO_TIMESTAMP, BatchHeader

RECENT_MAX: Final = 2048  # batches at the end of a log that are found without a read
RELATIVE_MAX: Final = 2**31 - 1  # what an index can say of an offset


class Located(NamedTuple):
    """A batch in a segment's file."""

    position: int
    size: int
    base_offset: int


class Segment:
    """A closed segment.

    Its indexes are read when they are first asked for, and made anew from the log if they are
    missing or cannot be right; the latter reads the whole file.
    """

    def __init__(self, directory: str, base_offset: int, size: int, interval_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.path = file_of(directory, base_offset, LOG)
        self._interval_bytes = interval_bytes
        self._indexes: Indexes | None = None
        self._largest: Largest | None = None
        self._first: BatchHeader | None = None

    def indexes(self, disk: Disk) -> Indexes:
        """The segment's indexes; for several threads."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._indexes = self.stored_indexes(disk) or self.built_indexes(disk)
        return indexes

    def stored_indexes(self, disk: Disk) -> Indexes | None:
        """The indexes in the segment's files; `None` if one is missing or cannot be right."""
        interval_bytes = self._interval_bytes
        return Indexes.read(disk, self.directory, self.base_offset, self.size, interval_bytes)

    def no_indexes(self) -> Indexes:
        """The indexes of a segment that is empty."""
        return Indexes(self.base_offset, self._interval_bytes)

    def built_indexes(self, disk: Disk) -> Indexes:
        """The indexes made anew from the whole file."""
        interval_bytes = self._interval_bytes
        return Indexes.build(disk, self.directory, self.base_offset, self.size, interval_bytes)

    def unload(self) -> None:
        """Let go of the indexes; they are read again when needed."""
        self._indexes = None

    def largest(self, disk: Disk) -> Largest:
        """The largest timestamp, -1 where no batch has one."""
        if self._largest is None:
            self._largest = (
                read_largest(disk, self.directory, self.base_offset) or self.indexes(disk).largest
            )
        return self._largest

    def first(self, disk: Disk) -> BatchHeader | None:
        """The header of the first batch; `None` in an empty segment."""
        if self._first is None and self.size:
            self._first = next(headers(disk, self.path, 0, self.size))[1]
        return self._first

    def find(self, disk: Disk, offset: int, end: int) -> Located | None:
        """The first batch that ends at or after ``offset``; none is looked at from ``end`` on.

        Reads from the disk, a few KB as a rule: between two entries of the index.
        """
        position = self.indexes(disk).offsets.floor(offset - self.base_offset)
        for at, header in headers(disk, self.path, position, end):
            if header.last_offset >= offset:
                return Located(at, header.size, header.base_offset)
        return None


class ActiveSegment(Segment):
    """The segment at the log's end; its indexes are complete in memory, and so is the place of
    each of its latest batches, so that consumers near the end cost no read.
    """

    def __init__(
        self, directory: str, base_offset: int, interval_bytes: int, created_ms: int
    ) -> None:
        super().__init__(directory, base_offset, 0, interval_bytes)
        self.created_ms = created_ms
        self.first_timestamp_ms = NO_TIMESTAMP
        self._growing = self._indexes = Indexes(base_offset, interval_bytes)
        self._recent_offsets = array("i")  # each batch's last offset, relative to the base
        self._recent_positions = array("i")
        self._before_recent = base_offset - 1

    @classmethod
    def resumed(
        cls, closed: Segment, disk: Disk, indexes: Indexes, end_offset: int, now_ms: int
    ) -> ActiveSegment:
        """A segment whose indexes are complete up to ``end_offset``, to be appended to again."""
        active = cls(closed.directory, closed.base_offset, closed._interval_bytes, now_ms)
        active.size = closed.size
        active._growing = active._indexes = indexes
        active._before_recent = end_offset - 1
        first = closed.first(disk)
        active.first_timestamp_ms = first.max_timestamp_ms if first else NO_TIMESTAMP
        return active

    def add(
        self,
        positions: Sequence[int],
        last_offsets: Sequence[int],
        times_ms: Sequence[int],
        size: int,
    ) -> None:
        """Note ``size`` bytes of batches at the end; positions count from the present end."""
        if not self.size:
            self.first_timestamp_ms = times_ms[0]
        self._growing.add(self.size, positions, last_offsets, times_ms)
        self._note_recent(positions, last_offsets)
        self.size += size

    def largest(self, disk: Disk) -> Largest:
        return self._growing.largest

    def find(self, disk: Disk, offset: int, end: int) -> Located | None:
        if offset <= self._before_recent:
            return super().find(disk, offset, end)
        found = bisect_left(self._recent_offsets, offset - self.base_offset)
        if found == len(self._recent_offsets):
            return None
        ends = [*self._recent_positions[found + 1 : found + 2], self.size]
        before = self._recent_offsets[found - 1] + self.base_offset if found else None
        position = self._recent_positions[found]
        base_offset = (self._before_recent if before is None else before) + 1
        return Located(position, ends[0] - position, base_offset)

    def is_full_for(
        self, size: int, last_offset: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Whether ``size`` bytes of batches up to ``last_offset`` have to go to a new segment."""
        return (
            self.size + size > segment_bytes
            or last_offset - self.base_offset > RELATIVE_MAX
            or len(self._growing.offsets) >= index_bytes // OFFSET_ENTRY
            or len(self._growing.times) >= index_bytes // TIME_ENTRY
        )

    def age_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """How long the segment has been written to when a batch of this time comes."""
        if self.first_timestamp_ms >= 0:
            return timestamp_ms - self.first_timestamp_ms
        return now_ms - self.created_ms

    def closed(self) -> Segment:
        """The same segment, to which nothing will be added."""
        self._growing.close()
        closed = Segment(self.directory, self.base_offset, self.size, self._interval_bytes)
        closed._indexes, closed._largest = self._growing, self._growing.largest
        return closed

    def forget_recent(self) -> None:
        """Look each batch up in the file: they do not all begin where the one before them ended."""
        if self._recent_offsets:
            self._before_recent = self._recent_offsets[-1] + self.base_offset
            self._drop_recent(0)

    def _note_recent(self, positions: Sequence[int], last_offsets: Sequence[int]) -> None:
        if len(positions) > RECENT_MAX:
            self._before_recent = last_offsets[-RECENT_MAX - 1]
            self._drop_recent(0)
        base, start = self.base_offset, self.size
        self._recent_offsets.extend([offset - base for offset in last_offsets[-RECENT_MAX:]])
        self._recent_positions.extend([start + at for at in positions[-RECENT_MAX:]])
        if len(self._recent_offsets) > 2 * RECENT_MAX:
            self._before_recent = self._recent_offsets[-RECENT_MAX - 1] + base
            self._drop_recent(RECENT_MAX)

    def _drop_recent(self, kept: int) -> None:
        dropped = len(self._recent_offsets) - kept
        del self._recent_offsets[:dropped], self._recent_positions[:dropped]
