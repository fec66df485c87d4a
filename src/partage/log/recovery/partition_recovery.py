"""Opening of a partition's log; only an unclean shutdown requires a scan.

The checkpoint says which bytes were acknowledged. Anything wrong before it is damage, and the log
is not opened (`DamagedLogError`). After it, the first invalid batch begins a torn tail, which was
never acknowledged. The tail is truncated, and kept beside the file unless it is all zeros. The
remaining unacknowledged bytes are written again and synced, and the checkpoint then covers them.

A crash during recovery is harmless: after each step, the next attempt reaches the same result.
Therefore later segments are set aside before an earlier one is truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from partage.log.catalogue.topic_config import LogConfig
from partage.log.checkpoints import Checkpoint, CheckpointSlot
from partage.log.compaction.segment_swap import read_progress
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.io import perform_writes, read_file
from partage.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    segment_file,
)
from partage.log.partition import PartitionLog
from partage.log.producer_state import ProducerStateManager
from partage.log.recovery.leftover_files import (
    file_offsets,
    finish_interrupted_work,
    first_retained_segment,
    remove_orphan_files,
    remove_segments,
)
from partage.log.recovery.segment_scan import BatchFault, replay_producers, scan_segment
from partage.log.recovery.torn_tail import Truncation, set_aside_segment, truncate_tail
from partage.log.results import Write
from partage.log.segments.segment import ActiveSegment, Segment
from partage.log.segments.segment_indexes import SegmentIndexes

_CHUNK_BYTES: Final = 1 << 20
# Exceeds the largest group of writes, so anything older was synced.
_REWRITE_BYTES_MAX: Final = 256 << 20


class OpenedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """An opened partition log, with the actions that recovery took, for the broker's log."""

    log: PartitionLog
    truncations: Sequence[Truncation]
    scanned_bytes: int


def open_partition(
    disk: Disk,
    directory: str,
    config: LogConfig,
    slot: CheckpointSlot,
    marker: Checkpoint | None,
    *,
    now_ms: int,
    cuts_nothing: bool = False,
    has_directory: bool = False,
) -> OpenedPartition:
    """Open the log of a partition, or create one in a directory that is empty or missing.

    Uses the disk synchronously: call it in a thread.

    Args:
        slot: The partition's checkpoint slot.
        marker: The checkpoint read from the slot, None if there is none.
        now_ms: Current time, ms since the epoch.
        cuts_nothing: The slot could not be read, so treat every fault as damage.
        has_directory: The directory is known to exist. Avoids listing thousands of directories.

    Raises:
        DamagedLogError: Acknowledged bytes are missing or changed.
    """
    if not (has_directory or disk.names(directory) or directory in disk.names("")):
        disk.make_directory(directory)
        disk.sync_directory("")
    finish_interrupted_work(disk, directory)
    opening = _PartitionRecovery(
        disk, directory, config, slot, marker or Checkpoint(), now_ms, cuts_nothing
    )
    return opening.resume() or opening.recover()


class _PartitionRecovery:
    """One attempt to open a partition."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        slot: CheckpointSlot,
        marker: Checkpoint,
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
        self._truncations: list[Truncation] = []
        self._scanned_bytes = 0
        names = disk.names(directory)
        self._aborted_bases = frozenset(file_offsets(names, TXN_INDEX_SUFFIX))
        self._bases = self._find_segments(names)
        self._drop_expired()

    def resume(self) -> OpenedPartition | None:
        """Return the log as a clean shutdown left it; None after an unclean shutdown."""
        marker, base_offset = self._marker, self._bases[-1]
        if not marker.is_clean or marker.base_offset != base_offset:
            return None
        segment, end_offset = self._closed(base_offset), marker.end_offset
        indexes = self._indexes_up_to(segment, end_offset)
        producers = self._snapshot(end_offset) if end_offset else ProducerStateManager()
        if segment.size != marker.position or indexes is None or producers is None:
            return None
        if segment.has_aborted and not self._is_aborted_index_valid(segment, end_offset):
            return None
        active = ActiveSegment.resume(segment, self._disk, indexes, end_offset, self._now_ms)
        earlier = [self._closed(base) for base in self._bases[:-1]]
        return self._opened_partition(earlier, active, producers, end_offset, is_as_closed=True)

    def recover(self) -> OpenedPartition:
        """Recover the log after a crash: scan from the checkpoint's segment on."""
        first = self._first_to_scan()
        earlier = [self._closed(base) for base in self._bases[:first]]
        producers = self._producers_at(first)
        scanned, end_offset, writes = self._scan(first, producers)
        self._remove_indexes(scanned)
        self._rewrite_unacknowledged(scanned)
        written = [Write(segment.path, 0, []) for segment in scanned if segment.size]
        perform_writes(self._disk, [*writes, *written])
        closed = [segment.to_closed() for segment in scanned[:-1]]
        opened = self._opened_partition(
            [*earlier, *closed], scanned[-1], producers, end_offset, is_as_closed=not end_offset
        )
        if self._scanned_bytes:
            perform_writes(self._disk, [opened.log.checkpoint_write()], sync=False)
        return opened

    def _find_segments(self, names: Sequence[str]) -> list[int]:
        """Return the base offsets of the segments among the files of the directory."""
        marker, bases = self._marker, file_offsets(names, LOG_SUFFIX)
        is_begun = not marker.position and (not bases or marker.base_offset > bases[-1])
        if is_begun or not bases:
            bases.append(marker.base_offset)  # the first append creates its file
        return bases

    def _drop_expired(self) -> None:
        """Remove segments before the log start offset.

        The first retained segment gets a producer snapshot first, because the removed segments hold
        that state.
        """
        kept = first_retained_segment(self._bases, self._marker.log_start_offset)
        if kept and self._snapshot(self._bases[kept]) is None:
            path = segment_file(self._directory, self._bases[kept], SNAPSHOT_SUFFIX)
            perform_writes(self._disk, [Write(path, 0, [self._producers_at(kept).snapshot()])])
        remove_segments(self._disk, self._directory, self._bases[:kept])
        del self._bases[:kept]

    def _first_to_scan(self) -> int:
        """Return the index of the first segment that may be incomplete."""
        if self._cuts_nothing or self._marker.base_offset < self._bases[0]:
            return 0
        if self._marker.base_offset not in self._bases:
            path = segment_file(self._directory, self._marker.base_offset, LOG_SUFFIX)
            raise DamagedLogError(path, 0, "the file is missing")
        return self._bases.index(self._marker.base_offset)

    def _scan(
        self, first: int, producers: ProducerStateManager
    ) -> tuple[list[ActiveSegment], int, list[Write]]:
        """Scan the segments from ``first`` on and truncate the log at the first fault.

        Returns:
            The valid segments, the offset after them, and the writes of missing index and snapshot
            files.
        """
        scanned, writes, end_offset = list[ActiveSegment](), list[Write](), self._bases[first]
        for at, base_offset in enumerate(self._bases[first:], first):
            if base_offset != end_offset and not self._is_gap_allowed(base_offset, end_offset):
                self._set_aside(at, "its base offset is not the end offset of the previous segment")
                break
            if scanned:
                writes += self._closed_segment_writes(scanned[-1], base_offset, producers)
            segment = self._new_active(base_offset)
            scanned.append(segment)
            end_offset, fault = self._scan_one(segment, producers)
            if fault:
                self._set_aside(at + 1, "the previous segment was truncated")
                self._truncations.append(truncate_tail(self._disk, segment.path, *fault))
                break
        return scanned, end_offset, writes

    def _scan_one(
        self, segment: ActiveSegment, producers: ProducerStateManager
    ) -> tuple[int, BatchFault | None]:
        """Scan one segment; raise `DamagedLogError` if a fault lies in acknowledged bytes."""
        size, acknowledged = self._size(segment.path), self._acknowledged(segment)
        cleaned_to = read_progress(self._disk, self._directory).cleaned_to
        dense = not self._cuts_nothing and segment.base_offset >= cleaned_to
        end_offset, fault = scan_segment(
            self._disk, segment, size, producers, self._now_ms, dense=dense
        )
        if not dense:
            segment.discard_recent()
        self._scanned_bytes += size
        if fault and (self._cuts_nothing or fault.position < acknowledged):
            raise DamagedLogError(segment.path, *fault)
        if segment.size < acknowledged:
            reason = f"the file ends here, but {acknowledged} bytes were acknowledged"
            raise DamagedLogError(segment.path, segment.size, reason)
        return end_offset, fault

    def _acknowledged(self, segment: Segment) -> int:
        """Return the position up to which the segment is known to be durable."""
        marker = self._marker
        return marker.position if marker.base_offset == segment.base_offset else 0

    def _rewrite_unacknowledged(self, segments: Sequence[ActiveSegment]) -> None:
        """Rewrite the unacknowledged tail before the next fsync.

        After a failed fsync, Linux marks the pages clean, so a later fsync would succeed without
        writing them. Without a checkpoint the unacknowledged part is unknown, so rewrite the last
        `_REWRITE_BYTES_MAX` bytes of the log.
        """
        room = _REWRITE_BYTES_MAX
        for segment in reversed(segments):
            position = self._acknowledged(segment)
            if self._cuts_nothing:
                position = max(position, segment.size - room)
                room -= segment.size - position
            elif segment.size - position > _REWRITE_BYTES_MAX:
                continue
            while position < segment.size:
                length = min(_CHUNK_BYTES, segment.size - position)
                chunk = self._disk.read(segment.path, position, length)
                self._disk.write(segment.path, position, [chunk])
                position += length

    def _set_aside(self, first: int, reason: str) -> None:
        """Set segments from ``first`` on aside, last one first."""
        for base_offset in reversed(self._bases[first:]):
            path = segment_file(self._directory, base_offset, LOG_SUFFIX)
            if self._cuts_nothing:
                raise DamagedLogError(path, 0, reason)
            self._truncations.append(
                set_aside_segment(self._disk, self._directory, base_offset, reason)
            )

    def _is_gap_allowed(self, base_offset: int, end_offset: int) -> bool:
        return self._cuts_nothing and base_offset > end_offset  # compaction leaves such gaps

    def _closed_segment_writes(
        self, segment: ActiveSegment, end_offset: int, producers: ProducerStateManager
    ) -> list[Write]:
        path = segment_file(self._directory, end_offset, SNAPSHOT_SUFFIX)
        snapshot = Write(path, 0, [producers.snapshot()])
        return [*segment.to_closed().index_writes(self._disk), snapshot]

    def _producers_at(self, segment: int) -> ProducerStateManager:
        """Return the producer state at a segment's base.

        Loads the nearest snapshot at or before it and replays the log from there.
        """
        for at in range(segment, -1, -1):
            producers = self._snapshot(self._bases[at])
            if producers is not None or at == 0:
                break
        producers = producers or ProducerStateManager()
        for base_offset in self._bases[at:segment]:
            replay_producers(self._disk, self._closed(base_offset), producers, self._now_ms)
        return producers

    def _snapshot(self, offset: int) -> ProducerStateManager | None:
        content = read_file(self._disk, segment_file(self._directory, offset, SNAPSHOT_SUFFIX))
        return None if content is None else ProducerStateManager.load(content)

    def _opened_partition(
        self,
        closed: Sequence[Segment],
        active: ActiveSegment,
        producers: ProducerStateManager,
        end_offset: int,
        *,
        is_as_closed: bool,
    ) -> OpenedPartition:
        """Return the result, after missing index files were created and orphan files removed."""
        self._complete_indexes(closed)
        bases = [segment.base_offset for segment in [*closed, active]]
        remove_orphan_files(self._disk, self._directory, bases, end_offset)
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
        return OpenedPartition(
            log=log, truncations=self._truncations, scanned_bytes=self._scanned_bytes
        )

    def _complete_indexes(self, closed: Sequence[Segment]) -> None:
        names = set(self._disk.names(self._directory))
        for segment in closed:
            paths = [
                segment_file(self._directory, segment.base_offset, suffix)
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            ]
            is_complete = {base_name(path) for path in paths} <= names
            if not is_complete:
                perform_writes(
                    self._disk, segment.rebuild_indexes(self._disk).writes(self._directory)
                )
            # A segment without aborted transactions has no file. So if another index was removed,
            # that one may have been removed, too.
            is_damaged = segment.has_aborted and segment.load_aborted(self._disk) is None
            if is_damaged or not is_complete:
                self._rebuild_aborted(segment)

    def _rebuild_aborted(self, segment: Segment) -> None:
        """Rebuild the index of aborted transactions from the headers and markers."""
        producers = self._producers_at(self._bases.index(segment.base_offset))
        segment.use_aborted(replay_producers(self._disk, segment, producers, self._now_ms))
        # A write does not shorten a damaged file.
        self._disk.remove(segment_file(self._directory, segment.base_offset, TXN_INDEX_SUFFIX))
        perform_writes(self._disk, segment.index_writes(self._disk))

    def _remove_indexes(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                self._disk.remove(segment_file(self._directory, segment.base_offset, suffix))

    def _indexes_up_to(self, segment: Segment, end_offset: int) -> SegmentIndexes | None:
        """Return a segment's indexes; None if they refer to batches that a crash has removed."""
        indexes = segment.load_indexes(self._disk) if segment.size else segment.empty_indexes()
        return indexes if indexes and indexes.end_offset <= end_offset else None

    def _is_aborted_index_valid(self, segment: Segment, end_offset: int) -> bool:
        aborted = segment.load_aborted(self._disk)
        return aborted is not None and (
            not aborted or aborted[len(aborted) - 1].last_offset < end_offset
        )

    def _closed(self, base_offset: int) -> Segment:
        size = self._size(segment_file(self._directory, base_offset, LOG_SUFFIX))
        interval_bytes = self._config.index_interval_bytes
        segment = Segment(self._directory, base_offset, size, interval_bytes)
        segment.has_aborted = base_offset in self._aborted_bases
        return segment

    def _new_active(self, base_offset: int) -> ActiveSegment:
        interval_bytes = self._config.index_interval_bytes
        return ActiveSegment(self._directory, base_offset, interval_bytes, self._now_ms)

    def _size(self, path: str) -> int:
        try:
            return self._disk.size(path)
        except FileNotFoundError:
            return 0
