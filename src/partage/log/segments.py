"""The segments of a log in a row, the last of them active, and how far they are durable."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from partage.log.disk import Buffer, Disk
from partage.log.indexing import Largest
from partage.log.layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_of
from partage.log.outcomes import Write
from partage.log.segment import ActiveSegment, Located, Segment
from partage.log.times import Readable
from partage.wire.records.batch import NO_TIMESTAMP


class End(NamedTuple):
    """The end of the log at some time."""

    offset: int
    base_offset: int  # of the last segment then
    position: int
    largest: Largest  # the largest timestamp in that segment then


class Stored:
    """Batches to be put at the end of the log, a row each."""

    def __init__(self) -> None:
        self.chunks: list[Buffer] = []
        self.positions: list[int] = []  # from the first batch on
        self.last_offsets: list[int] = []
        self.times_ms: list[int] = []
        self.size = 0

    def add(self, chunks: list[Buffer], size: int, last_offset: int, time_ms: int) -> None:
        """Add a batch; ``time_ms`` is its largest."""
        self.chunks += chunks
        self.positions.append(self.size)
        self.last_offsets.append(last_offset)
        self.times_ms.append(time_ms)
        self.size += size


class Segments:
    """A log's segments.

    Nothing above ``durable`` is handed to readers. Up to ``synced`` the files have been synced as
    well; where every group is, the two are one.
    """

    def __init__(
        self, disk: Disk, directory: str, closed: Sequence[Segment], active: ActiveSegment, end: int
    ) -> None:
        self.directory = directory
        self.active = active
        self.end_offset = end
        self._disk = disk
        self._segments: list[Segment] = [*closed, active]
        self.durable = self.synced = self._end()
        self._pending = deque[End]()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_durable(self) -> bool:
        """Whether everything is."""
        return not self._pending

    def add(self, batches: Stored) -> Write:
        """Put batches at the end."""
        active = self.active
        write = Write(active.path, active.size, batches.chunks)
        active.add(batches.positions, batches.last_offsets, batches.times_ms, batches.size)
        self.end_offset = batches.last_offsets[-1] + 1
        self._pending.append(self._end())
        return write

    def roll(self, interval_bytes: int, now_ms: int) -> list[Write]:
        """Close the active segment and begin the next one."""
        closed = self.active.closed()
        self.active = ActiveSegment(self.directory, self.end_offset, interval_bytes, now_ms)
        self._segments[-1:] = [closed, self.active]
        files = closed.indexes(self._disk).writes(self.directory)
        return [*files, Write(self.active.path, 0, [])]

    def mark_durable(self, end_offset: int, *, synced: bool) -> None:
        """Everything up to this offset is."""
        while self._pending and self._pending[0].offset <= end_offset:
            self.durable = self._pending.popleft()
        if synced:
            self.synced = self.durable

    def checkpoint(self) -> list[Write]:
        """Writes of nothing to every file that has to be synced for all that is durable to be."""
        if self.synced == self.durable:
            return []
        return [
            Write(path, 0, [])
            for segment in self._segments
            if self.synced.base_offset <= segment.base_offset <= self.durable.base_offset
            for path in self._unsynced_files(segment)
        ]

    def readable(self, offset: int) -> Iterator[Readable]:
        """The segments from the one with ``offset`` on, as far as they are durable."""
        first = bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1
        end = self.durable
        for segment in self._segments[max(0, first) :]:
            if segment.base_offset < end.base_offset:
                yield Readable(segment, segment.size)
            elif segment.base_offset == end.base_offset:
                yield Readable(segment, end.position, end.largest)

    def find(self, part: Readable, offset: int) -> Located | None:
        """The first readable batch of a segment that ends at or after ``offset``."""
        segment = part.segment
        if not part.size:
            return None
        if offset > segment.base_offset or segment is self.active:
            found = segment.find(self._disk, max(offset, segment.base_offset), part.size)
        else:
            first = segment.first(self._disk)
            found = Located(0, first.size, first.base_offset) if first else None
        return found if found and found.position < part.size else None

    def closed(self) -> list[tuple[Segment, int]]:
        """The segments that are closed and durable, each with the offset where it ends."""
        ends = [segment.base_offset for segment in self._segments[1:]]
        pairs = zip(self._segments, ends, strict=False)
        return [pair for pair in pairs if pair[0].base_offset < self.durable.base_offset]

    def unload(self) -> None:
        """Let go of the indexes of closed segments."""
        for segment, _ in self.closed():
            segment.unload()

    def drop(self, count: int) -> list[Segment]:
        """Take out the first segments; one has to stay."""
        dropped, self._segments = self._segments[:count], self._segments[count:]
        base_offset = self._segments[0].base_offset
        if self.durable.base_offset < base_offset:
            none = Largest(NO_TIMESTAMP, base_offset)
            self.durable = End(self.durable.offset, base_offset, 0, none)
        return dropped

    def replace(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Put compacted segments in the place of those before ``end_offset``."""
        kept = [segment for segment in self._segments if segment.base_offset >= end_offset]
        self._segments = [*segments, *kept]

    def _unsynced_files(self, segment: Segment) -> list[str]:
        suffixes = [LOG]
        if segment.base_offset < self.durable.base_offset:
            suffixes += [INDEX, TIME_INDEX]
        if segment.base_offset > self.synced.base_offset:
            suffixes.append(SNAPSHOT)
        return [file_of(self.directory, segment.base_offset, suffix) for suffix in suffixes]

    def _end(self) -> End:
        active = self.active
        return End(self.end_offset, active.base_offset, active.size, active.largest(self._disk))
