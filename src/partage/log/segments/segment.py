"""A segment: one file of batches, and look-ups of batches in it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.log.catalogue.topic_config import LogConfig
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.io import read_file
from partage.log.layout import LOG_SUFFIX, TXN_INDEX_SUFFIX, segment_file
from partage.log.results import Write
from partage.log.segments.aborted_index import AbortedIndex, AbortedTransaction
from partage.log.segments.batch_reader import read_headers
from partage.log.segments.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from partage.log.segments.segment_indexes import MaxTimestamp, SegmentIndexes, read_max_timestamp
from partage.wire.records.batch import NO_TIMESTAMP, BatchHeader

RECENT_BATCHES_MAX: Final = 2048  # newest batches of a log that are found without a read
RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # the largest relative offset in an index entry


class BatchLocation(NamedTuple):
    """Location of a batch in a segment's file."""

    position: int
    size: int
    base_offset: int


class Segment:
    """A closed segment.

    Its indexes are loaded on first use. If an index file is missing or implausible, they are
    rebuilt, which reads the whole file.
    """

    def __init__(self, directory: str, base_offset: int, size: int, interval_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.path = segment_file(directory, base_offset, LOG_SUFFIX)
        self._interval_bytes = interval_bytes
        self._indexes: SegmentIndexes | None = None
        self._largest: MaxTimestamp | None = None
        self._first: BatchHeader | None = None
        #: True if one of its markers aborts a transaction, so that it has an index of them.
        self.has_aborted = False
        self._aborted: AbortedIndex | None = None

    def indexes(self, disk: Disk) -> SegmentIndexes:
        """Return the segment's indexes. Safe to call from several threads."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._indexes = self.load_indexes(disk) or self.rebuild_indexes(disk)
        return indexes

    def load_indexes(self, disk: Disk) -> SegmentIndexes | None:
        """Return the indexes in the segment's files; None if a file is missing or implausible."""
        interval_bytes = self._interval_bytes
        return SegmentIndexes.load(
            disk, self.directory, self.base_offset, self.size, interval_bytes
        )

    def empty_indexes(self) -> SegmentIndexes:
        """Return the indexes of an empty segment."""
        return SegmentIndexes(self.base_offset, self._interval_bytes)

    def rebuild_indexes(self, disk: Disk) -> SegmentIndexes:
        """Rebuild the indexes from the whole segment file."""
        interval_bytes = self._interval_bytes
        return SegmentIndexes.build(
            disk, self.directory, self.base_offset, self.size, interval_bytes
        )

    def aborted(self, disk: Disk) -> AbortedIndex:
        """Return the index of aborted transactions, which this reads from disk on first use.

        Raises:
            DamagedLogError: The file is missing or implausible. Opening the log rebuilds it.
        """
        if self._aborted is None:
            self._aborted = self.load_aborted(disk) if self.has_aborted else AbortedIndex()
        if self._aborted is None:
            raise DamagedLogError(self._aborted_path, 0, "the index cannot be read")
        return self._aborted

    def load_aborted(self, disk: Disk) -> AbortedIndex | None:
        """Return the aborted transactions in the segment's file; None if it is not plausible."""
        content = read_file(disk, self._aborted_path)
        return None if content is None else AbortedIndex.decode(content, self.base_offset)

    def use_aborted(self, aborted: AbortedIndex) -> None:
        """Use this index of aborted transactions."""
        self._aborted = aborted
        self.has_aborted = len(aborted) > 0

    def index_writes(self, disk: Disk) -> list[Write]:
        """Return the writes of all index files of a closed segment."""
        writes = self.indexes(disk).writes(self.directory)
        if self.has_aborted:
            writes.append(Write(self._aborted_path, 0, [self.aborted(disk).encode()]))
        return writes

    @property
    def _aborted_path(self) -> str:
        return segment_file(self.directory, self.base_offset, TXN_INDEX_SUFFIX)

    def offset_bound(self, disk: Disk, position: int) -> int | None:
        """Return an offset above all records before a position; None above the last index entry."""
        offsets = self.indexes(disk).offsets
        found = bisect_left(offsets.positions, position)
        return self.base_offset + offsets.offsets[found] if found < len(offsets) else None

    def unload_indexes(self) -> None:
        """Drop the indexes from memory. They are loaded again when needed."""
        self._indexes = self._aborted = None

    def max_timestamp(self, disk: Disk) -> MaxTimestamp:
        """Return the largest timestamp, -1 if no batch has one."""
        if self._largest is None:
            self._largest = (
                read_max_timestamp(disk, self.directory, self.base_offset)
                or self.indexes(disk).max_timestamp
            )
        return self._largest

    def first_header(self, disk: Disk) -> BatchHeader | None:
        """Return the header of the first batch; None in an empty segment."""
        if self._first is None and self.size:
            self._first = next(read_headers(disk, self.path, 0, self.size))[1]
        return self._first

    def find_batch(self, disk: Disk, offset: int, end: int) -> BatchLocation | None:
        """Return the location of the first batch that ends at or after ``offset``.

        Reads the headers between two index entries, usually a few KB. Ignores batches from position
        ``end`` on.
        """
        position = self.indexes(disk).offsets.lookup(offset - self.base_offset)
        for at, header in read_headers(disk, self.path, position, end):
            if header.last_offset >= offset:
                return BatchLocation(at, header.size, header.base_offset)
        return None


class ActiveSegment(Segment):
    """The segment at the end of the log.

    Its indexes are complete in memory, and so are the positions of its newest batches. Consumers
    near the end of the log cost no read.
    """

    def __init__(
        self, directory: str, base_offset: int, interval_bytes: int, created_ms: int
    ) -> None:
        super().__init__(directory, base_offset, 0, interval_bytes)
        self.created_ms = created_ms
        self.first_timestamp_ms = NO_TIMESTAMP
        self._growing = self._indexes = SegmentIndexes(base_offset, interval_bytes)
        self._recent_offsets = array("i")  # last offset of each batch, relative to the base
        self._recent_positions = array("i")
        self._before_recent = base_offset - 1
        self._aborted = AbortedIndex()

    @classmethod
    def resume(
        cls, closed: Segment, disk: Disk, indexes: SegmentIndexes, end_offset: int, now_ms: int
    ) -> ActiveSegment:
        """Resume a closed segment as active; its indexes must be complete up to ``end_offset``."""
        active = cls(closed.directory, closed.base_offset, closed._interval_bytes, now_ms)
        active.size = closed.size
        active._growing = active._indexes = indexes
        active._before_recent = end_offset - 1
        active.use_aborted(closed.aborted(disk))
        first = closed.first_header(disk)
        active.first_timestamp_ms = first.max_timestamp_ms if first else NO_TIMESTAMP
        return active

    def add_batches(
        self,
        positions: Sequence[int],
        last_offsets: Sequence[int],
        times_ms: Sequence[int],
        size: int,
    ) -> None:
        """Record ``size`` bytes of batches; ``positions`` are relative to the old end."""
        if not self.size:
            self.first_timestamp_ms = times_ms[0]
        self._growing.add_batches(self.size, positions, last_offsets, times_ms)
        self._note_recent(positions, last_offsets)
        self.size += size

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Record a transaction whose abort marker was added."""
        assert self._aborted is not None
        self._aborted.add(transaction)
        self.has_aborted = True

    def max_timestamp(self, disk: Disk) -> MaxTimestamp:
        return self._growing.max_timestamp

    def find_batch(self, disk: Disk, offset: int, end: int) -> BatchLocation | None:
        if offset <= self._before_recent:
            return super().find_batch(disk, offset, end)
        found = bisect_left(self._recent_offsets, offset - self.base_offset)
        if found == len(self._recent_offsets):
            return None
        ends = [*self._recent_positions[found + 1 : found + 2], self.size]
        before = self._recent_offsets[found - 1] + self.base_offset if found else None
        position = self._recent_positions[found]
        base_offset = (self._before_recent if before is None else before) + 1
        return BatchLocation(position, ends[0] - position, base_offset)

    def must_roll(
        self, config: LogConfig, size: int, last_offset: int, newest_ms: int, now_ms: int
    ) -> bool:
        """True if ``size`` bytes of batches up to ``last_offset`` must go to a new segment."""
        return bool(self.size) and (
            self._age_ms(now_ms, newest_ms) > config.roll_ms
            or self.size + size > config.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or len(self._growing.offsets) >= config.segment_index_bytes // OFFSET_ENTRY_SIZE
            or len(self._growing.times) >= config.segment_index_bytes // TIME_ENTRY_SIZE
        )

    def _age_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """Return the segment's age when a batch with this timestamp arrives.

        As in Kafka, the age counts from the first timestamp in the segment, or from its creation if
        it has no timestamps.
        """
        if self.first_timestamp_ms >= 0:
            return timestamp_ms - self.first_timestamp_ms
        return now_ms - self.created_ms

    def to_closed(self) -> Segment:
        """Return the same segment as a closed one."""
        self._growing.close()
        closed = Segment(self.directory, self.base_offset, self.size, self._interval_bytes)
        closed._indexes, closed._largest = self._growing, self._growing.max_timestamp
        closed._aborted, closed.has_aborted = self._aborted, self.has_aborted
        return closed

    def discard_recent(self) -> None:
        """Look every batch up in the file: after a compaction, batches are not contiguous."""
        if self._recent_offsets:
            self._before_recent = self._recent_offsets[-1] + self.base_offset
            self._drop_recent(0)

    def _note_recent(self, positions: Sequence[int], last_offsets: Sequence[int]) -> None:
        if len(positions) > RECENT_BATCHES_MAX:
            self._before_recent = last_offsets[-RECENT_BATCHES_MAX - 1]
            self._drop_recent(0)
        base, start = self.base_offset, self.size
        self._recent_offsets.extend(
            [offset - base for offset in last_offsets[-RECENT_BATCHES_MAX:]]
        )
        self._recent_positions.extend([start + at for at in positions[-RECENT_BATCHES_MAX:]])
        if len(self._recent_offsets) > 2 * RECENT_BATCHES_MAX:
            self._before_recent = self._recent_offsets[-RECENT_BATCHES_MAX - 1] + base
            self._drop_recent(RECENT_BATCHES_MAX)

    def _drop_recent(self, kept: int) -> None:
        dropped = len(self._recent_offsets) - kept
        del self._recent_offsets[:dropped], self._recent_positions[:dropped]
