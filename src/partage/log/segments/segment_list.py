"""The ordered segments of a log, the last one active, and the end of its durable part."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from partage.log.disk import Disk
from partage.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from partage.log.prepared_batches import PreparedBatches
from partage.log.results import Slice, Write
from partage.log.segments.aborted_index import AbortedTransaction
from partage.log.segments.segment import ActiveSegment, BatchLocation, Segment
from partage.log.segments.segment_indexes import MaxTimestamp
from partage.log.segments.timestamp_lookup import ReadableSegment
from partage.wire.records.batch import NO_TIMESTAMP


class LogEnd(NamedTuple):
    """The end of the log at some time."""

    offset: int
    base_offset: int  # of the segment that was active then
    position: int
    max_timestamp: MaxTimestamp  # the largest timestamp in that segment then


class SegmentList:
    """The segments of one log.

    Consumers read nothing above ``durable``. Files are synced up to ``synced``, which equals
    ``durable`` unless the broker runs with ``--sync os``.
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
        self._pending = deque[LogEnd]()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_fully_durable(self) -> bool:
        """True if every appended batch is durable."""
        return not self._pending

    def append(self, batches: PreparedBatches) -> Write:
        """Append batches to the active segment and return the write."""
        active = self.active
        write = Write(active.path, active.size, batches.chunks)
        active.add_batches(
            batches.positions, batches.last_offsets, batches.max_timestamps_ms, batches.size
        )
        for transaction in batches.aborted:
            active.add_aborted(transaction)
        self.end_offset = batches.last_offsets[-1] + 1
        self._pending.append(self._end())
        return write

    def roll(self, interval_bytes: int, now_ms: int) -> list[Write]:
        """Close the active segment, begin the next one, and return the writes."""
        closed = self.active.to_closed()
        self.active = ActiveSegment(self.directory, self.end_offset, interval_bytes, now_ms)
        self._segments[-1:] = [closed, self.active]
        files = closed.index_writes(self._disk)
        return [*files, Write(self.active.path, 0, [])]

    def mark_durable(self, end_offset: int, *, synced: bool) -> None:
        """Mark everything up to this offset as durable, and as synced too if ``synced``."""
        while self._pending and self._pending[0].offset <= end_offset:
            self.durable = self._pending.popleft()
        if synced:
            self.synced = self.durable

    def unsynced_writes(self) -> list[Write]:
        """Return empty writes to the files that must be synced to make everything synced."""
        if self.synced == self.durable:
            return []
        return [
            Write(path, 0, [])
            for segment in self._segments
            if self.synced.base_offset <= segment.base_offset <= self.durable.base_offset
            for path in self._unsynced_files(segment)
        ]

    def readable_from(self, offset: int, end: LogEnd | None = None) -> Iterator[ReadableSegment]:
        """Yield the readable part of each segment, from the one that contains ``offset``.

        Args:
            offset: The first offset to read.
            end: The end of the readable part, by default of the durable one.
        """
        end = end or self.durable
        for segment in self._segments[self._number_of(offset) :]:
            if segment.base_offset < end.base_offset:
                yield ReadableSegment(segment, segment.size)
            elif segment.base_offset == end.base_offset:
                yield ReadableSegment(segment, end.position, end.max_timestamp)

    def find_batch(self, part: ReadableSegment, offset: int) -> BatchLocation | None:
        """Return the location of the first readable batch that ends at or after ``offset``."""
        segment = part.segment
        if not part.size:
            return None
        if offset > segment.base_offset or segment is self.active:
            found = segment.find_batch(self._disk, max(offset, segment.base_offset), part.size)
        else:
            first = segment.first_header(self._disk)
            found = BatchLocation(0, first.size, first.base_offset) if first else None
        return found if found and found.position < part.size else None

    def locate_batch(self, offset: int) -> LogEnd:
        """Return the position of the durable batch that contains ``offset``, as an end to read."""
        for part in self.readable_from(offset):
            if found := self.find_batch(part, offset):
                none = MaxTimestamp(NO_TIMESTAMP, offset)
                return LogEnd(offset, part.segment.base_offset, found.position, none)
        return self.durable

    def bytes_between(self, start: LogEnd, end: LogEnd) -> int:
        """Return the number of bytes between two positions."""
        size = sum(
            segment.size
            for segment in self._segments
            if start.base_offset <= segment.base_offset < end.base_offset
        )
        return size - start.position + end.position

    def end_of(self, part: Slice) -> int:
        """Return an offset above all records of a slice, at most an index interval above them."""
        at = self._number_of(part.base_offset)
        bound = self._segments[at].offset_bound(self._disk, part.position + part.length)
        if bound is not None:
            return bound
        later = self._segments[at + 1 : at + 2]
        return later[0].base_offset if later else self.end_offset

    @property
    def has_aborted(self) -> bool:
        """True if a marker in one of the segments aborts a transaction."""
        return any(segment.has_aborted for segment in self._segments)

    def aborted_transactions(self, begin: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range of offsets, in order of markers."""
        found = list[AbortedTransaction]()
        for segment in self._segments[self._number_of(begin) :]:
            if segment.has_aborted and segment.aborted(self._disk).collect(begin, end, found):
                break
        return found

    def _number_of(self, offset: int) -> int:
        """Return the index of the segment that contains ``offset``, or else of the first one."""
        return max(0, bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1)

    def durable_closed(self) -> list[tuple[Segment, int]]:
        """Return the closed and durable segments, each with its end offset."""
        ends = [segment.base_offset for segment in self._segments[1:]]
        pairs = zip(self._segments, ends, strict=False)
        return [pair for pair in pairs if pair[0].base_offset < self.durable.base_offset]

    def newest_times_ms(self, written_ms: int) -> list[int]:
        """Return the largest timestamp of each segment.

        One that has none is not newer than the segment after it: compaction may have left it
        without records. The last one then has ``written_ms``, the time of the last append.
        """
        newest_ms, found = written_ms, list[int]()
        for segment in reversed(self._segments):
            timestamp_ms = segment.max_timestamp(self._disk).timestamp_ms
            newest_ms = timestamp_ms if timestamp_ms >= 0 else newest_ms
            found.append(newest_ms)
        return found[::-1]

    def unload_indexes(self) -> None:
        """Unload the indexes of closed segments."""
        for segment, _ in self.durable_closed():
            segment.unload_indexes()

    def remove_oldest(self, count: int) -> list[Segment]:
        """Remove the first ``count`` segments from the list; at least one must stay."""
        dropped, self._segments = self._segments[:count], self._segments[count:]
        base_offset = self._segments[0].base_offset
        if self.durable.base_offset < base_offset:
            none = MaxTimestamp(NO_TIMESTAMP, base_offset)
            self.durable = LogEnd(self.durable.offset, base_offset, 0, none)
        return dropped

    def replace_compacted(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Replace the segments before ``end_offset`` by compacted ones."""
        kept = [segment for segment in self._segments if segment.base_offset >= end_offset]
        self._segments = [*segments, *kept]

    def _unsynced_files(self, segment: Segment) -> list[str]:
        suffixes = [LOG_SUFFIX]
        if segment.base_offset < self.durable.base_offset:
            suffixes += [INDEX_SUFFIX, TIME_INDEX_SUFFIX]
            if segment.has_aborted:
                suffixes.append(TXN_INDEX_SUFFIX)
        if segment.base_offset > self.synced.base_offset:
            suffixes.append(SNAPSHOT_SUFFIX)
        return [segment_file(self.directory, segment.base_offset, suffix) for suffix in suffixes]

    def _end(self) -> LogEnd:
        active = self.active
        return LogEnd(
            self.end_offset, active.base_offset, active.size, active.max_timestamp(self._disk)
        )
