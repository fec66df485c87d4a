"""A segment's two indexes: built from batches, stored in files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from partage.log.disk import Disk
from partage.log.io import read_file
from partage.log.layout import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from partage.log.results import Write
from partage.log.segments.batch_reader import SCAN_READ_BYTES, read_headers
from partage.log.segments.index import TIME_ENTRY_SIZE, OffsetIndex, TimeIndex
from partage.wire.records.batch import NO_TIMESTAMP


class MaxTimestamp(NamedTuple):
    """The largest timestamp of a segment, and the last offset of the first batch that has it."""

    timestamp_ms: int
    last_offset: int


class SegmentIndexes:
    """A segment's offset and time index, with the same entries that Kafka creates."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.max_timestamp = MaxTimestamp(NO_TIMESTAMP, base_offset)
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes

    def add_batches(
        self,
        start: int,
        positions: Sequence[int],
        last_offsets: Sequence[int],
        times_ms: Sequence[int],
    ) -> None:
        """Add contiguous batches; ``positions`` are relative to byte ``start`` of the file."""
        at, end = 0, len(positions)
        while at < end:
            due = self._last_position + self._interval_bytes - start
            point = bisect_right(positions, due, at)
            self._update_max_timestamp(last_offsets, times_ms, at, min(point + 1, end))
            if point < end:
                relative = last_offsets[point] - self._base_offset
                self.offsets.add(relative, start + positions[point])
                self._add_time_entry()
            at = point + 1

    def close(self) -> None:
        """Add the largest timestamp as the last entry; a closed segment's time index needs it."""
        self._add_time_entry()

    def writes(self, directory: str) -> list[Write]:
        """Return the writes of both index files."""
        return [
            Write(
                segment_file(directory, self._base_offset, INDEX_SUFFIX), 0, [self.offsets.encode()]
            ),
            Write(
                segment_file(directory, self._base_offset, TIME_INDEX_SUFFIX),
                0,
                [self.times.encode()],
            ),
        ]

    @classmethod
    def load(
        cls, disk: Disk, directory: str, base_offset: int, size: int, interval_bytes: int
    ) -> SegmentIndexes | None:
        """Load the indexes of a segment; None if a file is missing or implausible.

        A time index without entries may be a lost one, so it counts as implausible too.
        """
        content = read_file(disk, segment_file(directory, base_offset, INDEX_SUFFIX))
        offsets = None if content is None else OffsetIndex.decode(content, size)
        content = read_file(disk, segment_file(directory, base_offset, TIME_INDEX_SUFFIX))
        times = None if content is None else TimeIndex.decode(content)
        if offsets is None or not times:
            return None
        indexes = cls(base_offset, interval_bytes)
        indexes.offsets, indexes.times = offsets, times
        if len(times):
            indexes.max_timestamp = MaxTimestamp(
                times.timestamps[-1], base_offset + times.offsets[-1]
            )
        return indexes

    @classmethod
    def build(
        cls, disk: Disk, directory: str, base_offset: int, size: int, interval_bytes: int
    ) -> SegmentIndexes:
        """Build the indexes of a closed segment from all its batch headers."""
        indexes = cls(base_offset, interval_bytes)
        path = segment_file(directory, base_offset, LOG_SUFFIX)
        for position, header in read_headers(disk, path, 0, size, SCAN_READ_BYTES):
            indexes.add_batches(position, [0], [header.last_offset], [header.max_timestamp_ms])
        indexes.close()
        return indexes

    @property
    def end_offset(self) -> int:
        """Offset after the last one that an entry names."""
        last = max([*self.offsets.offsets[-1:], *self.times.offsets[-1:]], default=-1)
        return self._base_offset + last + 1

    @property
    def _last_position(self) -> int:
        return self.offsets.positions[-1] if len(self.offsets) else 0

    def _update_max_timestamp(
        self, last_offsets: Sequence[int], times_ms: Sequence[int], at: int, end: int
    ) -> None:
        largest = max(times_ms[at:end])
        if largest > self.max_timestamp.timestamp_ms:
            self.max_timestamp = MaxTimestamp(largest, last_offsets[times_ms.index(largest, at)])

    def _add_time_entry(self) -> None:
        timestamp_ms, last_offset = self.max_timestamp
        if timestamp_ms > NO_TIMESTAMP:
            self.times.add(timestamp_ms, last_offset - self._base_offset)


def read_max_timestamp(disk: Disk, directory: str, base_offset: int) -> MaxTimestamp | None:
    """Return the last entry of a closed segment's time index; None if there is none."""
    path = segment_file(directory, base_offset, TIME_INDEX_SUFFIX)
    try:
        size = disk.size(path)
    except FileNotFoundError:
        return None
    last = TimeIndex.decode(disk.read(path, max(0, size - TIME_ENTRY_SIZE), TIME_ENTRY_SIZE))
    if size % TIME_ENTRY_SIZE or not last:
        return None
    return MaxTimestamp(last.timestamps[0], base_offset + last.offsets[0])
