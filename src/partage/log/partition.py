"""One partition's log: what may be appended, where it goes, and what can be read.

Nothing here waits for the disk. `PartitionLog.append` says which writes make the append durable;
a shell performs them (`performing.perform`), in the order in which they were returned, and then
calls `mark_durable`. Readers see no further than that. Looking up an old offset or a time reads a
few KB through the disk at once, from the page cache as a rule; each method says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from partage.log.admission import Incoming, admit, stamped
from partage.log.compaction import ClosedSegment, Compacted, Plan, cleanable
from partage.log.config import LogConfig
from partage.log.disk import Buffer, Disk
from partage.log.epochs import EpochEnd, end_of_epoch
from partage.log.layout import SNAPSHOT, file_of, files_of_segment
from partage.log.markers import Marker, Slot
from partage.log.outcomes import Appended, Refusal, Slice, Step, Write
from partage.log.producers import Duplicate, Producers
from partage.log.retention import Aging, count_expired
from partage.log.segment import ActiveSegment, Segment
from partage.log.segments import End, Segments, Stored
from partage.log.swapping import read_progress, rename_swapped
from partage.log.times import Search, first_at_least, latest
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_TIMESTAMP

HIGH_WATERMARK: Final = -1  # in DeleteRecords: all that can be deleted


class PartitionLog:
    """The log of one partition; made by `recovery.open_partition`.

    Not for several threads: one loop calls it. If a write fails, the log is ahead of its files
    and must be thrown away and opened again.

    1. ``log_start_offset <= high_watermark <= end_offset``
    2. offsets are dense as they are appended: each batch begins where the one before it ended
    3. everything below ``high_watermark`` is durable, and nothing above it is shown

    ``config`` may be set at any time.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        slot: Slot,
        *,
        closed: Sequence[Segment],
        active: ActiveSegment,
        producers: Producers,
        log_start_offset: int,
        end_offset: int,
        is_as_closed: bool,
    ) -> None:
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.producers = producers
        self._disk = disk
        self._slot = slot
        self._segments = Segments(disk, directory, closed, active, end_offset)
        self._written_ms = active.created_ms
        self._is_as_closed = is_as_closed  # so that closing it again has nothing to write
        self._is_compacting = False

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets; what is before it need not be durable yet."""
        return self._segments.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which the log is durable, and can be read."""
        return self._segments.durable.offset

    @property
    def durable(self) -> End:
        """The end of what is durable, for `mark_synced`."""
        return self._segments.durable

    # Writing

    def append(
        self, payload: Buffer, *, at_ms: int, leader_epoch: int = 0, from_client: bool = True
    ) -> Appended | Refusal:
        """Take the batches of one partition in a Produce request.

        ``payload`` is one or more whole v2 batches; the writes hold views of it, so it must not
        change until they are done. What does not come from a client may be a control batch, and
        is held neither to sequence numbers nor to ``max.message.bytes``. Refused with
        CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER or
        INVALID_PRODUCER_EPOCH.
        """
        batches = admit(payload, self.config, at_ms, from_client=from_client)
        if isinstance(batches, Refusal):
            return batches
        verdict = self.producers.check([one.header for one in batches]) if from_client else None
        if isinstance(verdict, Refusal):
            return verdict
        time_ms = at_ms if self.config.uses_log_append_time else NO_TIMESTAMP
        if isinstance(verdict, Duplicate):
            return self._appended(verdict.base_offset, verdict.last_offset, time_ms, [])
        writes = self._roll_if_due(batches, at_ms, time_ms)
        base_offset = self.end_offset
        writes.append(self._segments.add(self._stored(batches, leader_epoch, time_ms, at_ms)))
        self._written_ms = at_ms
        self._is_as_closed = False
        return self._appended(base_offset, self.end_offset - 1, time_ms, writes)

    def mark_durable(self, end_offset: int, *, synced: bool = True) -> Write:
        """Everything up to ``end_offset`` has been written and synced: show it to readers.

        Returns the marker that says so, for a plain write that needs no sync of its own. With
        ``synced`` false (``--sync os``) readers see what was written, and the marker stays behind
        until the next `checkpoint`.
        """
        self._segments.mark_durable(end_offset, synced=synced)
        return self.marker()

    def marker(self) -> Write:
        """What is known to be synced, for this partition's slot."""
        return self._marker(self._segments.synced)

    def checkpoint(self) -> Step:
        """Sync what has been written, and say so; now and then where writes are not synced."""
        return self._step()

    def mark_synced(self, end: End) -> None:
        """A checkpoint made at this end of what is ``durable`` is done: the next begins there."""
        self._segments.synced = end

    def close(self) -> Step:
        """What makes the next start quick; nothing may be appended any more.

        Call it when all has been written; otherwise the next start scans the active segment.
        """
        if self._is_as_closed:
            return self._step(is_clean=True)
        indexes = self._segments.active.closed().indexes(self._disk)
        files = [*indexes.writes(self.directory), self._snapshot()]
        return self._step(files, is_clean=self._segments.is_durable)

    # Reading

    def locate(
        self, offset: int, bytes_max: int, *, whole_first: bool = True
    ) -> list[Slice] | Refusal:
        """What to read for a fetch from ``offset``: at most ``bytes_max`` bytes.

        The first batch is the one that holds the offset, and is whole: where it is larger than
        ``bytes_max`` it comes alone with ``whole_first`` (KIP-74), and else nothing does. Empty
        at the high watermark. Refused with OFFSET_OUT_OF_RANGE. Away from the log's end this
        reads a few KB. Raises `DamagedLog`.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not from {self.log_start_offset} to {self.end_offset}",
            )
        slices, room = list[Slice](), bytes_max
        if offset >= self.high_watermark:
            return slices
        for part in self._segments.readable(offset):
            found = self._segments.find(part, offset)
            if found is None:
                continue
            if not slices and found.size > room:
                room = found.size if whole_first else 0
            if room <= 0:
                break
            length = min(room, part.size - found.position)
            slices.append(
                Slice(
                    path=part.segment.path,
                    position=found.position,
                    length=length,
                    base_offset=found.base_offset,
                )
            )
            room -= length
        return slices

    def time_search(self, timestamp_ms: int | None) -> Search:
        """Looks for the first record with this time or a later one, None for the largest there is.
        For a thread; if it fails, a segment may have been replaced meanwhile: ask for another one.
        """
        parts = list(self._segments.readable(self.log_start_offset))
        if timestamp_ms is None:
            return partial(latest, self._disk, parts, self.log_start_offset)
        return partial(first_at_least, self._disk, parts, timestamp_ms, self.log_start_offset)

    def end_offset_for_epoch(self, leader_epoch: int, *, current: int = 0) -> EpochEnd:
        """Where an epoch ended (OffsetForLeaderEpoch); -1 and -1 for one that has not been."""
        parts = list(self._segments.readable(self.log_start_offset))
        return end_of_epoch(self._disk, parts, leader_epoch, current, self.high_watermark)

    # Removing

    def delete_records(self, before: int) -> Step | Refusal:
        """Let the log start at ``before``, -1 for the high watermark (DeleteRecords).

        The answer is ``log_start_offset``, once the step's marker is durable; the files go with
        `expired`. Refused with OFFSET_OUT_OF_RANGE, and POLICY_VIOLATION on a topic that is only
        compacted.
        """
        if self.config.compacts and not self.config.deletes:
            return Refusal(ErrorCode.POLICY_VIOLATION, "records of compacted topics stay")
        offset = self.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= offset <= self.high_watermark:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not from 0 to the high watermark, {self.high_watermark}",
            )
        self.log_start_offset = max(self.log_start_offset, offset)
        return self._step()

    def expired(self, now_ms: int) -> Step | None:
        """What retention by time and size removes now, as of ``retention.*`` and DeleteRecords.

        If all has expired, the active segment goes too and an empty one takes its place. Call it
        every few minutes: it also forgets producers that are long gone, and lets go of the
        indexes of old segments. Nothing is removed while a compaction is under way.
        """
        self.producers.expire(now_ms)
        self._segments.unload()
        if self._is_compacting:
            return None
        count = count_expired(
            self._aging(),
            self.config,
            now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        return self._remove(count, now_ms) if count else None

    def plan_compaction(self, now_ms: int) -> Plan | None:
        """What compaction should do now; `None` if nothing (yet), or if one is under way.

        See `compaction` for the three parts. Ends with `swap_in` or `abandon_compaction`.
        """
        if self._is_compacting or not self.config.compacts:
            return None
        closed = [
            ClosedSegment(one.base_offset, end, one.size, self._newest_ms(one))
            for one, end in self._segments.closed()
        ]
        progress = read_progress(self._disk, self.directory)
        segments = cleanable(closed, self.config, progress, now_ms)
        if not segments:
            return None
        self._is_compacting = True
        return Plan(
            directory=self.directory,
            config=self.config,
            now_ms=now_ms,
            segments=segments,
            progress=progress,
            producers_last=self.producers.last_offsets(),
            checkpoint=self.checkpoint(),
        )

    def swap_in(self, compacted: Compacted) -> None:
        """Use the segments of a compaction from now on; renames a few files at once.

        `swapping.end_swap` has to follow. Reads located before may find other bytes, or no file:
        see `reading.fault_in_slice`.
        """
        rename_swapped(self._disk, self.directory, compacted.swap)
        interval_bytes = self.config.index_interval_bytes
        self._segments.replace(
            compacted.plan.end_offset,
            [
                Segment(self.directory, base_offset, size, interval_bytes)
                for base_offset, size in compacted.segments
            ],
        )
        self._is_compacting = False

    def abandon_compaction(self) -> None:
        """A compaction that was planned has failed; its traces go with the next one."""
        self._is_compacting = False

    # What the above is made of

    def _step(
        self, writes: Sequence[Write] = (), removals: Sequence[str] = (), *, is_clean: bool = False
    ) -> Step:
        """A step whose marker says that everything durable is synced, once its writes are done."""
        writes = [*writes, *self._segments.checkpoint()]
        marker = self._marker(self._segments.durable, is_clean=is_clean)
        return Step(writes=writes, marker=marker, removals=removals)

    def _marker(self, end: End, *, is_clean: bool = False) -> Write:
        return self._slot.write(
            Marker(
                base_offset=end.base_offset,
                position=end.position,
                end_offset=end.offset,
                log_start_offset=self.log_start_offset,
                is_clean=is_clean,
            )
        )

    def _appended(
        self, base_offset: int, last_offset: int, time_ms: int, writes: Sequence[Write]
    ) -> Appended:
        return Appended(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=time_ms,
            log_start_offset=self.log_start_offset,
            writes=writes,
        )

    def _roll_if_due(self, batches: Sequence[Incoming], now_ms: int, time_ms: int) -> list[Write]:
        size = sum(batch.header.size for batch in batches)
        records = sum(batch.header.record_count for batch in batches)
        newest_ms = max(time_ms, *(batch.header.max_timestamp_ms for batch in batches))
        active, config = self._segments.active, self.config
        is_due = active.size and (
            active.age_ms(now_ms, newest_ms) > config.roll_ms
            or active.is_full_for(
                size, self.end_offset + records, config.segment_bytes, config.segment_index_bytes
            )
        )
        return self._roll(now_ms) if is_due else []

    def _roll(self, now_ms: int) -> list[Write]:
        """Begin a new segment at the log's end."""
        interval_bytes = self.config.index_interval_bytes
        return [self._snapshot(), *self._segments.roll(interval_bytes, now_ms)]

    def _stored(
        self, batches: Sequence[Incoming], leader_epoch: int, time_ms: int, now_ms: int
    ) -> Stored:
        """The batches as they go to the log's end, their producers remembered."""
        stored, offset = Stored(), self.end_offset
        for batch in batches:
            header = batch.header
            last_offset = offset + header.last_offset_delta
            newest_ms = header.max_timestamp_ms if time_ms == NO_TIMESTAMP else time_ms
            chunks = stamped(batch, offset, leader_epoch, time_ms)
            stored.add(chunks, header.size, last_offset, newest_ms)
            self.producers.remember(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                offset,
                last_offset,
                is_control=header.is_control,
                seen_ms=now_ms,
            )
            offset = last_offset + 1
        return stored

    def _snapshot(self) -> Write:
        """The producers' state at the log's end."""
        path = file_of(self.directory, self.end_offset, SNAPSHOT)
        return Write(path, 0, [self.producers.snapshot()])

    def _aging(self) -> list[Aging]:
        segments = list(self._segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        return [
            Aging(one.size, self._newest_ms(one), end, one is self._segments.active)
            for one, end in zip(segments, ends, strict=True)
        ]

    def _newest_ms(self, segment: Segment) -> int:
        """A segment's largest timestamp; where there is none, when the log was last written."""
        timestamp_ms = segment.largest(self._disk).timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self._written_ms

    def _remove(self, count: int, now_ms: int) -> Step:
        """Take the first segments out of the log."""
        writes = list[Write]()
        if count == len(self._segments):
            self._segments.roll(self.config.index_interval_bytes, now_ms)
            self._is_as_closed = False
            writes = [self._snapshot()]
        removed = self._segments.drop(count)
        self.log_start_offset = max(self.log_start_offset, next(iter(self._segments)).base_offset)
        paths = [
            path
            for segment in removed
            for path in files_of_segment(self.directory, segment.base_offset)
        ]
        return self._step(writes, paths)
