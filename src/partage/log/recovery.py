"""Opening a partition: after a clean shutdown nothing is scanned, otherwise the end is.

The marker says what was acknowledged. Anything wrong before it is damage, and the log is not
opened (`DamagedLog`). After it, the first batch that is not right begins a torn tail, which no
one was told of: it is cut, and kept beside the file unless it is all zeros. What is left is
written once more and synced, and from then on it is what the marker says.

A crash in here changes nothing: each step leaves files from which the next attempt comes to the
same result. That is why later segments are set aside before an earlier one is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from partage.log.config import LogConfig
from partage.log.damage import DamagedLog
from partage.log.disk import Disk
from partage.log.indexing import Indexes
from partage.log.layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_of, name_of
from partage.log.leftovers import (
    drop_segments,
    drop_strays,
    finish_what_was_begun,
    first_kept,
    segment_bases,
)
from partage.log.markers import Marker, Slot
from partage.log.outcomes import Write
from partage.log.partition import PartitionLog
from partage.log.performing import perform, read_file
from partage.log.producers import Producers
from partage.log.scanning import Fault, replay_producers, scan_segment
from partage.log.segment import ActiveSegment, Segment
from partage.log.swapping import read_progress
from partage.log.torn import Cut, cut_tail, set_aside

_CHUNK_BYTES: Final = 1 << 20
_WRITTEN_AGAIN_MAX: Final = 256 << 20  # more than what one group can hold; beyond it nobody synced


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's log, ready for use, and what start-up had to do, for the shell's log."""

    log: PartitionLog
    cuts: Sequence[Cut]
    scanned_bytes: int


def open_partition(
    disk: Disk,
    directory: str,
    config: LogConfig,
    slot: Slot,
    marker: Marker | None,
    *,
    now_ms: int,
    cuts_nothing: bool = False,
    has_directory: bool = False,
) -> Opened:
    """Open the log of a partition, or begin one in a directory that is empty or missing.

    ``marker`` is what was found in the partition's slot. ``cuts_nothing``: the slot could not be
    read, so anything wrong anywhere is taken for damage. ``has_directory``: it is known to be
    there, so nobody need look among thousands. Uses the disk at once: for a thread of the shell's.

    Raises:
        DamagedLog: acknowledged bytes are missing or changed.
    """
    if not (has_directory or disk.names(directory) or directory in disk.names("")):
        disk.make_directory(directory)
        disk.sync_directory("")
    finish_what_was_begun(disk, directory)
    opening = _Opening(disk, directory, config, slot, marker or Marker(), now_ms, cuts_nothing)
    return opening.resumed() or opening.recovered()


class _Opening:
    """One attempt at opening a partition."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        slot: Slot,
        marker: Marker,
        now_ms: int,
        cuts_nothing: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._slot = slot
        self._marker = marker
        self._now_ms = now_ms
        self._cuts_nothing = cuts_nothing
        self._cuts: list[Cut] = []
        self._scanned_bytes = 0
        self._bases = self._find_segments()
        self._drop_expired()

    def resumed(self) -> Opened | None:
        """The log as a clean shutdown left it; `None` if there was none."""
        marker, base_offset = self._marker, self._bases[-1]
        if not marker.is_clean or marker.base_offset != base_offset:
            return None
        segment, end_offset = self._closed(base_offset), marker.end_offset
        indexes = self._indexes_up_to(segment, end_offset)
        producers = self._snapshot(end_offset) if end_offset else Producers()
        if segment.size != marker.position or indexes is None or producers is None:
            return None
        active = ActiveSegment.resumed(segment, self._disk, indexes, end_offset, self._now_ms)
        earlier = [self._closed(base) for base in self._bases[:-1]]
        return self._opened(earlier, active, producers, end_offset, is_as_closed=True)

    def recovered(self) -> Opened:
        """The log after a crash, scanned from the segment on that the marker names."""
        first = self._first_to_scan()
        earlier = [self._closed(base) for base in self._bases[:first]]
        producers = self._producers_at(first)
        scanned, end_offset, writes = self._scan(first, producers)
        self._forget_indexes(scanned)
        self._write_again(scanned)
        written = [Write(segment.path, 0, []) for segment in scanned if segment.size]
        perform(self._disk, [*writes, *written])
        closed = [segment.closed() for segment in scanned[:-1]]
        opened = self._opened(
            [*earlier, *closed], scanned[-1], producers, end_offset, is_as_closed=not end_offset
        )
        if self._scanned_bytes:
            perform(self._disk, [opened.log.marker()], sync=False)
        return opened

    def _find_segments(self) -> list[int]:
        """The segments' base offsets."""
        marker, bases = self._marker, segment_bases(self._disk, self._directory)
        is_begun = not marker.position and (not bases or marker.base_offset > bases[-1])
        if is_begun or not bases:
            bases.append(marker.base_offset)  # its file is made by the first append
        return bases

    def _drop_expired(self) -> None:
        """Remove the segments that retention had given up, once what they tell of producers is
        kept with the first that stays.
        """
        kept = first_kept(self._bases, self._marker.log_start_offset)
        if kept and self._snapshot(self._bases[kept]) is None:
            path = file_of(self._directory, self._bases[kept], SNAPSHOT)
            perform(self._disk, [Write(path, 0, [self._producers_at(kept).snapshot()])])
        drop_segments(self._disk, self._directory, self._bases[:kept])
        del self._bases[:kept]

    def _first_to_scan(self) -> int:
        """Which segment is the first that is not known to be whole."""
        if self._cuts_nothing or self._marker.base_offset < self._bases[0]:
            return 0
        if self._marker.base_offset not in self._bases:
            path = file_of(self._directory, self._marker.base_offset, LOG)
            raise DamagedLog(path, 0, "the file is missing")
        return self._bases.index(self._marker.base_offset)

    def _scan(
        self, first: int, producers: Producers
    ) -> tuple[list[ActiveSegment], int, list[Write]]:
        """The segments from ``first`` on as far as they are sound, the rest cut off; the offset
        after them; and the files that closed ones among them should have.
        """
        scanned, writes, end_offset = list[ActiveSegment](), list[Write](), self._bases[first]
        for at, base_offset in enumerate(self._bases[first:], first):
            if base_offset != end_offset and not self._is_gap_allowed(base_offset, end_offset):
                self._set_aside(at, "the segment before it ends elsewhere")
                break
            if scanned:
                writes += self._closing(scanned[-1], base_offset, producers)
            segment = self._begun(base_offset)
            scanned.append(segment)
            end_offset, fault = self._scan_one(segment, producers)
            if fault:
                self._set_aside(at + 1, "what stood before it was cut off")
                self._cuts.append(cut_tail(self._disk, segment.path, *fault))
                break
        return scanned, end_offset, writes

    def _scan_one(self, segment: ActiveSegment, producers: Producers) -> tuple[int, Fault | None]:
        """Scan one segment; raises `DamagedLog` if what is wrong with it was acknowledged."""
        size, acknowledged = self._size(segment.path), self._acknowledged(segment)
        cleaned_to = read_progress(self._disk, self._directory).cleaned_to
        dense = not self._cuts_nothing and segment.base_offset >= cleaned_to
        end_offset, fault = scan_segment(
            self._disk, segment, size, producers, self._now_ms, dense=dense
        )
        if not dense:
            segment.forget_recent()
        self._scanned_bytes += size
        if fault and (self._cuts_nothing or fault.position < acknowledged):
            raise DamagedLog(segment.path, *fault)
        if segment.size < acknowledged:
            reason = f"the file ends here, and {acknowledged} bytes were acknowledged"
            raise DamagedLog(segment.path, segment.size, reason)
        return end_offset, fault

    def _acknowledged(self, segment: Segment) -> int:
        """The byte before which all is known to be durable."""
        marker = self._marker
        return marker.position if marker.base_offset == segment.base_offset else 0

    def _write_again(self, segments: Sequence[ActiveSegment]) -> None:
        """Make the next sync do something: after one that failed the system takes bytes for clean
        which only its memory has, and would lose them with all that is acknowledged after them.

        Where no marker says what was synced, that may be the last of everything.
        """
        room = _WRITTEN_AGAIN_MAX
        for segment in reversed(segments):
            position = self._acknowledged(segment)
            if self._cuts_nothing:
                position = max(position, segment.size - room)
                room -= segment.size - position
            elif segment.size - position > _WRITTEN_AGAIN_MAX:
                continue
            while position < segment.size:
                length = min(_CHUNK_BYTES, segment.size - position)
                chunk = self._disk.read(segment.path, position, length)
                self._disk.write(segment.path, position, [chunk])
                position += length

    def _set_aside(self, first: int, reason: str) -> None:
        """Take segments out of the log, the last one first."""
        for base_offset in reversed(self._bases[first:]):
            path = file_of(self._directory, base_offset, LOG)
            if self._cuts_nothing:
                raise DamagedLog(path, 0, reason)
            self._cuts.append(set_aside(self._disk, self._directory, base_offset, reason))

    def _is_gap_allowed(self, base_offset: int, end_offset: int) -> bool:
        return self._cuts_nothing and base_offset > end_offset  # compaction leaves such gaps

    def _closing(
        self, segment: ActiveSegment, end_offset: int, producers: Producers
    ) -> list[Write]:
        indexes = segment.closed().indexes(self._disk)
        path = file_of(self._directory, end_offset, SNAPSHOT)
        return [*indexes.writes(self._directory), Write(path, 0, [producers.snapshot()])]

    def _producers_at(self, segment: int) -> Producers:
        """The producers at a segment's base: from its snapshot, or an earlier one and the log."""
        for at in range(segment, -1, -1):
            producers = self._snapshot(self._bases[at])
            if producers is not None or at == 0:
                break
        producers = producers or Producers()
        for base_offset in self._bases[at:segment]:
            replay_producers(self._disk, self._closed(base_offset), producers, self._now_ms)
        return producers

    def _snapshot(self, offset: int) -> Producers | None:
        content = read_file(self._disk, file_of(self._directory, offset, SNAPSHOT))
        return None if content is None else Producers.load(content)

    def _opened(
        self,
        closed: Sequence[Segment],
        active: ActiveSegment,
        producers: Producers,
        end_offset: int,
        *,
        is_as_closed: bool,
    ) -> Opened:
        """The result, once files that are missing are there, and those of nobody are not."""
        self._complete_indexes(closed)
        bases = [segment.base_offset for segment in [*closed, active]]
        drop_strays(self._disk, self._directory, bases, end_offset)
        log = PartitionLog(
            self._disk,
            self._directory,
            self._config,
            self._slot,
            closed=closed,
            active=active,
            producers=producers,
            log_start_offset=min(max(self._marker.log_start_offset, bases[0]), end_offset),
            end_offset=end_offset,
            is_as_closed=is_as_closed,
        )
        return Opened(log=log, cuts=self._cuts, scanned_bytes=self._scanned_bytes)

    def _complete_indexes(self, closed: Sequence[Segment]) -> None:
        names = set(self._disk.names(self._directory))
        for segment in closed:
            paths = [
                file_of(self._directory, segment.base_offset, suffix)
                for suffix in (INDEX, TIME_INDEX)
            ]
            if not {name_of(path) for path in paths} <= names:
                perform(self._disk, segment.built_indexes(self._disk).writes(self._directory))

    def _forget_indexes(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            for suffix in (INDEX, TIME_INDEX):
                self._disk.remove(file_of(self._directory, segment.base_offset, suffix))

    def _indexes_up_to(self, segment: Segment, end_offset: int) -> Indexes | None:
        """A segment's indexes, unless they tell of batches that a crash has taken away."""
        indexes = segment.stored_indexes(self._disk) if segment.size else segment.no_indexes()
        return indexes if indexes and indexes.end_offset <= end_offset else None

    def _closed(self, base_offset: int) -> Segment:
        size = self._size(file_of(self._directory, base_offset, LOG))
        return Segment(self._directory, base_offset, size, self._config.index_interval_bytes)

    def _begun(self, base_offset: int) -> ActiveSegment:
        interval_bytes = self._config.index_interval_bytes
        return ActiveSegment(self._directory, base_offset, interval_bytes, self._now_ms)

    def _size(self, path: str) -> int:
        try:
            return self._disk.size(path)
        except FileNotFoundError:
            return 0
