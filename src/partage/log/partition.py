"""The log of one partition.

No method waits for the disk. `PartitionLog.append` returns the writes that make the append durable.
A shell performs them in the returned order (`io.perform_writes`) and then calls `mark_durable`.
Consumers read only up to the durable offset. A look-up of an old offset or of a timestamp reads a
few KB through the disk synchronously, usually from the page cache. The docstrings say which methods
do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from partage.log.catalogue.topic_config import NO_LAG_MAX_MS, LogConfig
from partage.log.checkpoints import Checkpoint, CheckpointSlot
from partage.log.compaction.plan import (
    CleanableSegment,
    CompactionPlan,
    CompactionResult,
    find_cleanable,
)
from partage.log.compaction.segment_swap import (
    CompactionProgress,
    read_progress,
    rename_swapped_files,
)
from partage.log.disk import Buffer, Disk
from partage.log.errors import DamagedLogError
from partage.log.layout import SNAPSHOT_SUFFIX, segment_file, segment_files
from partage.log.prepared_batches import PreparedBatches, prepare_batches, prepare_own_batch
from partage.log.producer_state import DuplicateBatch, ProducerStateManager, VerificationGuard
from partage.log.results import AppendResult, DurableStep, Refusal, Slice, Write
from partage.log.segments.aborted_index import AbortedTransaction
from partage.log.segments.leader_epochs import EpochEnd, find_epoch_end
from partage.log.segments.retention import RetentionCandidate, count_expired
from partage.log.segments.segment import ActiveSegment, Segment
from partage.log.segments.segment_list import LogEnd, SegmentList
from partage.log.segments.timestamp_lookup import (
    TimestampLookup,
    find_by_timestamp,
    find_max_timestamp,
)
from partage.log.validator import extent_of, validate_batches
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_TIMESTAMP
from partage.wire.records.transaction_marker import encode_marker

HIGH_WATERMARK: Final = -1  # in DeleteRecords: delete everything up to the high watermark


class PartitionLog:
    """The log of one partition, created by `partition_recovery.open_partition`.

    Not thread-safe: one event loop calls it. If a write fails, the log is ahead of its files.
    Discard it and open the partition again.

    Invariants:

    1. ``log_start_offset <= last_stable_offset <= high_watermark <= end_offset``
    2. Appended offsets are dense: each batch begins where the previous batch ended.
    3. Everything below ``high_watermark`` is durable, and consumers see nothing above it.

    ``config`` may be replaced at any time.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        slot: CheckpointSlot,
        *,
        closed: Sequence[Segment],
        active: ActiveSegment,
        producers: ProducerStateManager,
        log_start_offset: int,
        end_offset: int,
        is_as_closed: bool,
    ) -> None:
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.producer_state = producers
        self._disk = disk
        self._slot = slot
        self._segments = SegmentList(disk, directory, closed, active, end_offset)
        self._written_ms = active.created_ms
        self._is_unchanged = is_as_closed  # close() has nothing to write again
        self._is_compacting = False
        self.compaction_count = 0  # since the log was opened
        self._compacted: CompactionProgress | None = None  # read at the first compaction
        self._stable_end = self._segments.durable  # the last position that was looked up
        producers.on_high_watermark(end_offset)

    @property
    def end_offset(self) -> int:
        """Offset of the next record to append. Earlier records may not be durable yet."""
        return self._segments.end_offset

    @property
    def high_watermark(self) -> int:
        """Offset up to which the log is durable and consumers can read."""
        return self._segments.durable.offset

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which every transaction has ended (KIP-98).

        It is the first offset of the earliest transaction that is open, else the high watermark. A
        transaction has ended once its marker is durable.
        """
        high_watermark = self._segments.durable.offset
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def stable_end(self) -> LogEnd:
        """Position of the last stable offset; this may read a few KB from disk."""
        end, offset = self._segments.durable, self.last_stable_offset
        if offset == end.offset:
            return end
        if self._stable_end.offset != offset:
            self._stable_end = self._segments.locate_batch(offset)
        return self._stable_end

    def bytes_between(self, start: LogEnd, end: LogEnd) -> int:
        """Return the number of bytes between two positions, such as earlier stable ends."""
        return self._segments.bytes_between(start, end)

    @property
    def size(self) -> int:
        """Size of all segments in bytes, without indexes."""
        return sum(segment.size for segment in self._segments)

    @property
    def durable_end(self) -> LogEnd:
        """End of the durable part of the log. Pass it to `mark_synced`."""
        return self._segments.durable

    # Appending

    def append(
        self,
        payload: Buffer,
        *,
        at_ms: int,
        leader_epoch: int = 0,
        from_client: bool = True,
        are_records_checked: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult | Refusal:
        """Validate and append the batches of one partition in a Produce request.

        Args:
            payload: One or more complete v2 batches. The returned writes hold views of it, so do
                not change it until they are performed.
            at_ms: Current time, ms since the epoch.
            leader_epoch: Epoch to stamp into the batches.
            from_client: False for the broker's own batches. Those may be control batches, and are
                checked neither for sequence numbers nor for ``max.message.bytes``.
            are_records_checked: True if `validate_batches` has already validated the payload.
            guard: The proof that a transactional batch of a client may open its transaction here:
                see `ProducerStateManager.start_verification`.

        Returns:
            The offsets and the writes, or a `Refusal` with CORRUPT_MESSAGE, INVALID_RECORD,
            MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_TXN_STATE,
            OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH. A duplicate batch (KIP-98) gets
            its first offsets and no writes.
        """
        if not from_client and (result := self._append_plain(payload, at_ms, leader_epoch)):
            return result
        batches = validate_batches(
            payload,
            self.config,
            at_ms,
            from_client=from_client,
            are_records_checked=are_records_checked,
        )
        if isinstance(batches, Refusal):
            return batches
        headers, producers = [one.header for one in batches], self.producer_state
        verdict = (
            producers.check(headers, guard) if from_client else producers.check_from_broker(headers)
        )
        time_ms = at_ms if self.config.uses_log_append_time else NO_TIMESTAMP
        if isinstance(verdict, DuplicateBatch):
            return self._append_result(verdict.base_offset, verdict.last_offset, time_ms, [])
        if verdict is not None:
            return verdict
        writes = self._roll_if_due(*extent_of(headers, time_ms), at_ms)
        stored = prepare_batches(batches, producers, self.end_offset, leader_epoch, time_ms, at_ms)
        return self._append_prepared(stored, writes, time_ms, at_ms)

    def _append_plain(self, payload: Buffer, at_ms: int, leader_epoch: int) -> AppendResult | None:
        """Append a plain batch of the broker; return None if `validate_batches` must decide."""
        if self.config.uses_log_append_time or len(payload) > self.config.segment_bytes:
            return None
        stored = prepare_own_batch(payload, self.end_offset, leader_epoch)
        if stored is None:
            return None
        records = stored.last_offsets[0] + 1 - self.end_offset
        writes = self._roll_if_due(stored.size, records, stored.max_timestamps_ms[0], at_ms)
        return self._append_prepared(stored, writes, NO_TIMESTAMP, at_ms)

    def _append_prepared(
        self, stored: PreparedBatches, writes: list[Write], time_ms: int, at_ms: int
    ) -> AppendResult:
        """Append batches to the active segment; ``writes`` precede them."""
        base_offset = self.end_offset
        writes.append(self._segments.append(stored))
        self._written_ms = at_ms
        self._is_unchanged = False
        return self._append_result(base_offset, self.end_offset - 1, time_ms, writes)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
        at_ms: int,
        leader_epoch: int = 0,
    ) -> AppendResult | Refusal:
        """Append the marker that ends a producer's transaction (KIP-98).

        A marker without an open transaction is appended, too: it raises the producer's epoch.

        Args:
            producer_id: The producer.
            producer_epoch: The epoch of the marker.
            coordinator_epoch: The epoch of the transaction coordinator.
            is_commit: True to commit the transaction, False to abort it.
            transaction_version: 2 if each marker raises the epoch (KIP-890); 0 and 1 otherwise.
            at_ms: Current time, ms since the epoch.
            leader_epoch: Epoch to stamp into the batch.

        Returns:
            The offset and the writes, or a `Refusal` with INVALID_PRODUCER_EPOCH or
            TRANSACTION_COORDINATOR_FENCED.
        """
        refusal = self.producer_state.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )
        if refusal is not None:
            return refusal
        content = encode_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            is_commit=is_commit,
            timestamp_ms=at_ms,
        )
        result = self.append(content, at_ms=at_ms, leader_epoch=leader_epoch, from_client=False)
        if not isinstance(result, Refusal):
            self.producer_state.end_verification(producer_id, transaction_version)
        return result

    def mark_durable(self, end_offset: int, *, synced: bool = True) -> None:
        """Advance the high watermark to ``end_offset`` after the writes below it were performed.

        Args:
            end_offset: The log end offset when the performed writes were returned.
            synced: True if they were synced: then write the checkpoint too, see `checkpoint_write`.
                False with ``--sync os``: the checkpoint stays until the next `checkpoint` step.
        """
        self._segments.mark_durable(end_offset, synced=synced)
        if self.producer_state.first_unstable_offset is not None:
            self.producer_state.on_high_watermark(self.high_watermark)

    def checkpoint_write(self) -> Write:
        """Return the write of the last synced position to the checkpoint slot; it needs no sync."""
        return self._checkpoint_at(self._segments.synced)

    def checkpoint(self) -> DurableStep:
        """Return a step that syncs all durable writes and then records the checkpoint.

        Call it periodically where writes are not synced.
        """
        return self._step()

    def mark_synced(self, end: LogEnd) -> None:
        """Record that a checkpoint step at ``end`` (a former `durable_end`) was performed.

        The next checkpoint step begins there.
        """
        self._segments.synced = end

    def close(self) -> DurableStep:
        """Return the step that lets the next start skip the scan; append nothing after it.

        Call it when all writes are durable; otherwise the next start scans the active segment.
        """
        if self._is_unchanged:
            return self._step(is_clean=True)
        indexes = self._segments.active.to_closed().index_writes(self._disk)
        files = [*indexes, self._snapshot()]
        return self._step(files, is_clean=self._segments.is_fully_durable)

    # Reading

    def locate(
        self, offset: int, bytes_max: int, *, whole_first: bool = True, only_stable: bool = False
    ) -> list[Slice] | Refusal:
        """Return the slices to read for a fetch from ``offset``, ``bytes_max`` bytes at most.

        Each slice begins with a complete batch, and the first one with that of the offset. Its last
        batch may be cut off. Away from the end of the log this reads a few KB from disk.

        Args:
            offset: Fetch offset.
            bytes_max: Limit of all slices together, in bytes.
            whole_first: Return a first batch larger than ``bytes_max`` anyway, alone (KIP-74). If
                False, return nothing in that case.
            only_stable: Return only what is below the last stable offset (isolation level
                read_committed).

        Returns:
            The slices, empty at the end of the readable part, or a `Refusal` with
            OFFSET_OUT_OF_RANGE.

        Raises:
            DamagedLogError: The segment with ``offset`` is damaged.
            OSError: It cannot be read.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between {self.log_start_offset} and {self.end_offset}",
            )
        slices, room = list[Slice](), bytes_max
        end = self._segments.durable
        if only_stable and self.last_stable_offset < end.offset:
            if offset >= self.last_stable_offset:
                return slices
            end = self.stable_end
        if offset >= end.offset:
            return slices
        for part in self._segments.readable_from(offset, end):
            try:
                found = self._segments.find_batch(part, offset)
            except (DamagedLogError, OSError):
                if slices:
                    break  # a fetch from a later offset fails
                raise
            if found is None:
                continue
            if found.size > room:
                if slices or not whole_first:
                    break  # an incomplete batch is of no use to the client
                room = found.size
            length = min(room, part.size - found.position)
            slices.append(
                Slice(
                    path=part.segment.path,
                    position=found.position,
                    length=length,
                    base_offset=found.base_offset,
                    first_size=found.size,
                )
            )
            room -= length
        return slices

    def aborted_transactions(self, begin: int, slices: Sequence[Slice]) -> list[AbortedTransaction]:
        """Return the aborted transactions of which slices may hold records.

        A reader needs them to skip those records. It may read a few KB from disk.

        Args:
            begin: The offset that the slices were located for.
            slices: The result of `locate`.

        Returns:
            The transactions, ordered by first offset. Some may begin after the slices.

        Raises:
            DamagedLogError: An index of aborted transactions is damaged.
        """
        if not slices or not self._segments.has_aborted:
            return []
        end = min(self._segments.end_of(slices[-1]), self.last_stable_offset)
        return sorted(
            self._segments.aborted_transactions(begin, end), key=lambda one: one.first_offset
        )

    def timestamp_lookup(self, timestamp_ms: int | None) -> TimestampLookup:
        """Return a function that finds the first record with this timestamp or a later one.

        Call the function in a thread. If it fails, a segment may have been replaced meanwhile:
        request a new look-up.

        Args:
            timestamp_ms: ms since the epoch; None finds the record with the largest timestamp.
        """
        parts = list(self._segments.readable_from(self.log_start_offset))
        if timestamp_ms is None:
            return partial(find_max_timestamp, self._disk, parts, self.log_start_offset)
        return partial(find_by_timestamp, self._disk, parts, timestamp_ms, self.log_start_offset)

    def end_offset_for_epoch(self, leader_epoch: int, *, current: int = 0) -> EpochEnd:
        """Return the end offset of an epoch (OffsetForLeaderEpoch); -1 and -1 if it is unknown."""
        parts = list(self._segments.readable_from(self.log_start_offset))
        return find_epoch_end(self._disk, parts, leader_epoch, current, self.high_watermark)

    # Retention and compaction

    def delete_records(self, before: int) -> DurableStep | Refusal:
        """Advance the log start offset to ``before`` (DeleteRecords).

        `apply_retention` removes the files later.

        Args:
            before: The new log start offset, -1 for the high watermark.

        Returns:
            A step. Answer the client with ``log_start_offset`` once its checkpoint is durable. Or a
            `Refusal`: OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION if ``cleanup.policy`` is only
            ``compact``.
        """
        if self.config.compacts and not self.config.deletes:
            return Refusal(
                ErrorCode.POLICY_VIOLATION,
                "records of a topic with cleanup.policy=compact cannot be deleted",
            )
        offset = self.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= offset <= self.high_watermark:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between 0 and the high watermark, {self.high_watermark}",
            )
        self.log_start_offset = max(self.log_start_offset, offset)
        return self._step()

    def apply_retention(self, now_ms: int) -> DurableStep | None:
        """Remove segments as ``retention.ms``, ``retention.bytes`` and DeleteRecords require.

        If every segment has expired, an empty one replaces the active segment. Call it every few
        minutes: it also removes expired producers and unloads indexes of old segments. It removes
        nothing during a compaction.

        Returns:
            The step that removes the files, None if nothing has expired.
        """
        self.producer_state.remove_expired(now_ms)
        self._segments.unload_indexes()
        if self._is_compacting:
            return None
        count = count_expired(
            self._retention_candidates(),
            self.config,
            now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        return self._remove(count, now_ms) if count else None

    def plan_compaction(self, now_ms: int) -> CompactionPlan | None:
        """Plan a compaction that is due; None if none is due or one is in progress.

        End it with `apply_compaction` or `abandon_compaction`. See `compaction.plan` for the three
        parts of a compaction.
        """
        if self._is_compacting or not self.config.compacts:
            return None
        stable = self.last_stable_offset
        closed = [pair for pair in self._segments.durable_closed() if pair[1] <= stable]
        if not closed:
            return None
        if self._compacted is None:
            self._compacted = read_progress(self._disk, self.directory)
        progress = self._compacted
        times_ms = self._segments.newest_times_ms(self._written_ms)
        candidates = [
            CleanableSegment(one.base_offset, end, one.size, newest, self._oldest_ms(one, newest))
            for (one, end), newest in zip(closed, times_ms, strict=False)
        ]
        segments = find_cleanable(candidates, self.config, progress, now_ms)
        if not segments:
            return None
        aborted = self._segments.aborted_transactions(0, segments[-1].end_offset)
        self._is_compacting = True
        return CompactionPlan(
            directory=self.directory,
            config=self.config,
            now_ms=now_ms,
            segments=segments,
            progress=progress,
            producer_last_offsets=self.producer_state.last_offsets(),
            producer_epochs=self.producer_state.epochs_without_batches(),
            aborted=aborted,
            checkpoint=self.checkpoint(),
        )

    def apply_compaction(self, compacted: CompactionResult) -> None:
        """Replace the compacted segments; this renames a few files synchronously.

        Call `segment_swap.finish_swap` afterwards. Slices located before may now hold other bytes,
        or have no file: see `batch_reader.check_slice`.
        """
        rename_swapped_files(self._disk, self.directory, compacted.swap)
        interval_bytes, segments = self.config.index_interval_bytes, list[Segment]()
        for one in compacted.segments:
            segment = Segment(self.directory, one.base_offset, one.size, interval_bytes)
            segment.use_aborted(one.aborted)
            segments.append(segment)
        self._segments.replace_compacted(compacted.plan.end_offset, segments)
        self._compacted = compacted.swap.progress
        self.compaction_count += 1
        self._is_compacting = False

    def abandon_compaction(self) -> None:
        """End a planned compaction that failed. The next one removes its temporary files."""
        self._is_compacting = False

    def _step(
        self, writes: Sequence[Write] = (), removals: Sequence[str] = (), *, is_clean: bool = False
    ) -> DurableStep:
        """Return a step whose checkpoint says that everything durable is synced."""
        writes = [*writes, *self._segments.unsynced_writes()]
        marker = self._checkpoint_at(self._segments.durable, is_clean=is_clean)
        return DurableStep(writes=writes, checkpoint=marker, removals=removals)

    def _checkpoint_at(self, end: LogEnd, *, is_clean: bool = False) -> Write:
        return self._slot.prepare_write(
            Checkpoint(
                base_offset=end.base_offset,
                position=end.position,
                end_offset=end.offset,
                log_start_offset=self.log_start_offset,
                is_clean=is_clean,
            )
        )

    def _append_result(
        self, base_offset: int, last_offset: int, time_ms: int, writes: Sequence[Write]
    ) -> AppendResult:
        return AppendResult(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=time_ms,
            log_start_offset=self.log_start_offset,
            writes=writes,
        )

    def _roll_if_due(self, size: int, records: int, newest_ms: int, now_ms: int) -> list[Write]:
        """Begin a new segment if batches of this size, count and largest timestamp need one."""
        config, last_offset = self.config, self.end_offset + records
        if not self._segments.active.must_roll(config, size, last_offset, newest_ms, now_ms):
            return []
        return [self._snapshot(), *self._segments.roll(config.index_interval_bytes, now_ms)]

    def _snapshot(self) -> Write:
        """Return the write of a producer snapshot at the end of the log."""
        path = segment_file(self.directory, self.end_offset, SNAPSHOT_SUFFIX)
        return Write(path, 0, [self.producer_state.snapshot()])

    def _retention_candidates(self) -> list[RetentionCandidate]:
        segments, times_ms = list(self._segments), self._segments.newest_times_ms(self._written_ms)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        return [
            RetentionCandidate(one.size, newest, end, one is self._segments.active)
            for one, newest, end in zip(segments, times_ms, ends, strict=True)
        ]

    def _oldest_ms(self, segment: Segment, newest_ms: int) -> int:
        """Return the time of a segment's first record, which this reads from disk once.

        Only a topic with ``max.compaction.lag.ms`` needs it.
        """
        header = None
        if self.config.max_compaction_lag_ms < NO_LAG_MAX_MS:
            header = segment.first_header(self._disk)
        if header is None or header.is_log_append_time:
            return newest_ms
        first_ms = header.base_timestamp_ms
        return first_ms if first_ms >= 0 else newest_ms

    def _remove(self, count: int, now_ms: int) -> DurableStep:
        """Remove the first ``count`` segments from the log."""
        writes = list[Write]()
        if count == len(self._segments):
            self._segments.roll(self.config.index_interval_bytes, now_ms)
            self._is_unchanged = False
            writes = [self._snapshot()]
        removed = self._segments.remove_oldest(count)
        self.log_start_offset = max(self.log_start_offset, next(iter(self._segments)).base_offset)
        paths = [
            path
            for segment in removed
            for path in segment_files(self.directory, segment.base_offset)
        ]
        return self._step(writes, paths)
