"""Making a segment's indexes from its batches, and keeping them in files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from partage.log.disk import Disk
from partage.log.index import TIME_ENTRY, OffsetIndex, TimeIndex
from partage.log.layout import INDEX, LOG, TIME_INDEX, file_of
from partage.log.outcomes import Write
from partage.log.performing import read_file
from partage.log.reading import FAR_BYTES, headers
from partage.wire.records.batch import NO_TIMESTAMP


class Largest(NamedTuple):
    """The largest timestamp of a segment, and the last offset of the first batch that has it."""

    timestamp_ms: int
    last_offset: int


class Indexes:
    """A segment's two indexes, growing as batches are added; the same entries as Kafka makes."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.largest = Largest(NO_TIMESTAMP, base_offset)
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes

    def add(
        self,
        start: int,
        positions: Sequence[int],
        last_offsets: Sequence[int],
        times_ms: Sequence[int],
    ) -> None:
        """Note batches that follow each other; positions count from byte ``start`` of the file."""
        at, end = 0, len(positions)
        while at < end:
            due = self._last_position + self._interval_bytes - start
            point = bisect_right(positions, due, at)
            self._note_largest(last_offsets, times_ms, at, min(point + 1, end))
            if point < end:
                relative = last_offsets[point] - self._base_offset
                self.offsets.add(relative, start + positions[point])
                self._note_time()
            at = point + 1

    def close(self) -> None:
        """Make the time index end with the largest time, as a closed segment's does."""
        self._note_time()

    def writes(self, directory: str) -> list[Write]:
        """What makes the files of these indexes."""
        return [
            Write(file_of(directory, self._base_offset, INDEX), 0, [self.offsets.encode()]),
            Write(file_of(directory, self._base_offset, TIME_INDEX), 0, [self.times.encode()]),
        ]

    @classmethod
    def read(
        cls, disk: Disk, directory: str, base_offset: int, size: int, interval_bytes: int
    ) -> Indexes | None:
        """The indexes in a segment's files; `None` if one is missing or cannot be right.

        A time index without entries may be one that was lost: it is not believed either.
        """
        content = read_file(disk, file_of(directory, base_offset, INDEX))
        offsets = None if content is None else OffsetIndex.decode(content, size)
        content = read_file(disk, file_of(directory, base_offset, TIME_INDEX))
        times = None if content is None else TimeIndex.decode(content)
        if offsets is None or not times:
            return None
        indexes = cls(base_offset, interval_bytes)
        indexes.offsets, indexes.times = offsets, times
        if len(times):
            indexes.largest = Largest(times.timestamps[-1], base_offset + times.offsets[-1])
        return indexes

    @classmethod
    def build(
        cls, disk: Disk, directory: str, base_offset: int, size: int, interval_bytes: int
    ) -> Indexes:
        """The indexes of a closed segment, made by walking over all of it."""
        indexes = cls(base_offset, interval_bytes)
        path = file_of(directory, base_offset, LOG)
        for position, header in headers(disk, path, 0, size, FAR_BYTES):
            indexes.add(position, [0], [header.last_offset], [header.max_timestamp_ms])
        indexes.close()
        return indexes

    @property
    def end_offset(self) -> int:
        """The offset after the last one that an entry names."""
        last = max([*self.offsets.offsets[-1:], *self.times.offsets[-1:]], default=-1)
        return self._base_offset + last + 1

    @property
    def _last_position(self) -> int:
        return self.offsets.positions[-1] if len(self.offsets) else 0

    def _note_largest(
        self, last_offsets: Sequence[int], times_ms: Sequence[int], at: int, end: int
    ) -> None:
        largest = max(times_ms[at:end])
        if largest > self.largest.timestamp_ms:
            self.largest = Largest(largest, last_offsets[times_ms.index(largest, at)])

    def _note_time(self) -> None:
        timestamp_ms, last_offset = self.largest
        if timestamp_ms > NO_TIMESTAMP:
            self.times.add(timestamp_ms, last_offset - self._base_offset)


def read_largest(disk: Disk, directory: str, base_offset: int) -> Largest | None:
    """The last entry of a closed segment's time index; `None` if there is no such file or entry."""
    path = file_of(directory, base_offset, TIME_INDEX)
    try:
        size = disk.size(path)
    except FileNotFoundError:
        return None
    last = TimeIndex.decode(disk.read(path, max(0, size - TIME_ENTRY), TIME_ENTRY))
    if size % TIME_ENTRY or not last:
        return None
    return Largest(last.timestamps[0], base_offset + last.offsets[0])
