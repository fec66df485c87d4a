"""One partition's log: what may be appended, where it goes, and what can be read.

Nothing here waits for the disk. `PartitionLog.append` says which writes make the append durable;
a shell performs them (`performing.perform`), in the order in which they were returned, and then
calls `mark_durable`. Readers see no further than that. Looking up an old offset or a time reads a
few KB through the disk at once, from the page cache as a rule; each method says so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from partage.log import times
from partage.log.admission import Incoming, admit, stamped
from partage.log.config import LogConfig
from partage.log.disk import Buffer, Disk
from partage.log.epochs import EpochEnd, end_of_epoch
from partage.log.indexing import Largest
from partage.log.layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_of, files_of_segment
from partage.log.markers import Marker, Slot
from partage.log.outcomes import Appended, Refusal, Slice, Step, Write
from partage.log.producers import Duplicate, Producers, SequencedBatch
from partage.log.retention import Aging, count_expired
from partage.log.segment import ActiveSegment, Located, Segment
from partage.log.times import Readable, TimedOffset
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_PRODUCER, NO_TIMESTAMP, BatchHeader

LOADED_MAX: Final = 4  # closed segments whose indexes are kept in memory
HIGH_WATERMARK: Final = -1  # in DeleteRecords: all that can be deleted


class _End(NamedTuple):
    """The end of the log at some time."""

    offset: int
    base_offset: int  # of the last segment then
    position: int
    largest: Largest  # the largest timestamp in that segment then


class PartitionLog:
    """The log of one partition; made by `recovery.open_partition`.

    Not for several threads: one loop calls it. If a write fails, the log is ahead of its files
    and must be thrown away and opened again.

    1. ``log_start_offset <= high_watermark <= end_offset``
    2. offsets are dense as they are appended: each batch begins where the one before it ended
    3. everything below ``high_watermark`` is durable, and nothing above it is shown
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        slot: Slot,
        *,
        segments: Sequence[Segment],
        active: ActiveSegment,
        producers: Producers,
        log_start_offset: int,
        end_offset: int,
    ) -> None:
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.producers = producers
        self._disk = disk
        self._slot = slot
        self._segments: list[Segment] = [*segments, active]
        self._active = active
        self._written_ms = active.created_ms
        self._durable = self._end()
        self._pending = deque[_End]()
        self._checkpointed = active.base_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which the log is durable, and can be read."""
        return self._durable.offset

    @property
    def size(self) -> int:
        """All segments together, in bytes."""
        return sum(segment.size for segment in self._segments)

    # Writing

    def append(
        self, payload: Buffer, *, at_ms: int, leader_epoch: int = 0, from_client: bool = True
    ) -> Appended | Refusal:
        """Take the batches of one partition in a Produce request.

        ``payload`` is one or more whole v2 batches; the writes hold views of it, so it must not
        change until they are done. What does not come from a client may be a control batch and
        is not held to sequence numbers. Refused with CORRUPT_MESSAGE, INVALID_RECORD,
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_TXN_STATE,
        OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
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
        writes.append(self._add(batches, leader_epoch, time_ms, at_ms))
        return self._appended(base_offset, self.end_offset - 1, time_ms, writes)

    def mark_durable(self, end_offset: int) -> Write:
        """Everything up to ``end_offset`` has been written and synced: show it to readers.

        Returns the marker that says so, for a plain write that needs no sync of its own. Where
        writes are not synced the marker would not be true: leave it out.
        """
        while self._pending and self._pending[0].offset <= end_offset:
            self._durable = self._pending.popleft()
        return self.marker()

    def marker(self, *, is_clean: bool = False) -> Write:
        """What is durable now, for this partition's slot."""
        return self._slot.write(
            Marker(
                base_offset=self._durable.base_offset,
                position=self._durable.position,
                end_offset=self._durable.offset,
                log_start_offset=self.log_start_offset,
                is_clean=is_clean,
            )
        )

    def checkpoint(self) -> Step:
        """What makes a marker true where writes are not synced (``--sync os``); now and then."""
        writes = self._written_since_checkpoint()
        self._checkpointed = self._durable.base_offset
        return Step(writes=writes, marker=self.marker())

    def close(self) -> Step:
        """What makes the next start quick; nothing may be appended any more.

        Call it when all has been written; otherwise the next start scans the active segment.
        """
        indexes = self._active.closed().indexes(self._disk)
        writes = [*self._written_since_checkpoint(), *indexes.writes(self.directory)]
        is_clean = not self._pending
        return Step(writes=[*writes, self._snapshot()], marker=self.marker(is_clean=is_clean))

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
        for part in self._readable(offset):
            found = self._find(part, offset)
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

    def offset_for_timestamp(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record with this time or a later one; reads one batch, and a few KB more."""
        parts = self._readable(self.log_start_offset)
        return times.first_at_least(self._disk, parts, timestamp_ms, self.log_start_offset)

    def max_timestamp_offset(self) -> TimedOffset | None:
        """The first of the records with the largest time (ListOffsets -3); reads as above."""
        parts = self._readable(self.log_start_offset)
        return times.latest(self._disk, parts, self.log_start_offset)

    def end_offset_for_epoch(self, leader_epoch: int, *, current: int = 0) -> EpochEnd:
        """Where an epoch ended (OffsetForLeaderEpoch); -1 and -1 for one that has not been."""
        parts = list(self._readable(0))
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
        return Step(marker=self.marker())

    def expired(self, now_ms: int) -> Step | None:
        """What retention by time and size removes now, as of ``retention.*`` and DeleteRecords.

        If all has expired, the active segment goes too and an empty one takes its place. Call it
        every few minutes: it also forgets producers that are long gone, and lets go of the
        indexes of old segments.
        """
        self.producers.expire(now_ms)
        for segment in self._segments:
            if segment.base_offset < self._durable.base_offset:
                segment.unload()
        count = count_expired(
            self._aging(),
            self.config,
            now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        return self._remove(count, now_ms) if count else None

    # What the above is made of

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
        active, config = self._active, self.config
        is_due = active.size and (
            active.age_ms(now_ms, newest_ms) > config.roll_ms
            or active.is_full_for(
                size, self.end_offset + records, config.segment_bytes, config.segment_index_bytes
            )
        )
        return self._roll(now_ms) if is_due else []

    def _roll(self, now_ms: int) -> list[Write]:
        """Begin a new segment at the log's end."""
        closed = self._active.closed()
        active = ActiveSegment(
            self.directory, self.end_offset, self.config.index_interval_bytes, now_ms
        )
        self._segments[-1:] = [closed, active]
        self._active = active
        indexes = closed.indexes(self._disk)
        return [*indexes.writes(self.directory), self._snapshot(), Write(active.path, 0, [])]

    def _add(
        self, batches: Sequence[Incoming], leader_epoch: int, time_ms: int, now_ms: int
    ) -> Write:
        """Put batches at the end of the active segment."""
        chunks = list[Buffer]()
        positions, last_offsets, times_ms = list[int](), list[int](), list[int]()
        position, offset = 0, self.end_offset
        for batch in batches:
            header = batch.header
            last_offset = offset + header.last_offset_delta
            chunks += stamped(batch, offset, leader_epoch, time_ms)
            positions.append(position)
            last_offsets.append(last_offset)
            times_ms.append(header.max_timestamp_ms if time_ms == NO_TIMESTAMP else time_ms)
            self._remember_producer(header, offset, last_offset, now_ms)
            position += header.size
            offset = last_offset + 1
        write = Write(self._active.path, self._active.size, chunks)
        self._active.add(positions, last_offsets, times_ms, position)
        self.end_offset = offset
        self._written_ms = now_ms
        self._pending.append(self._end())
        return write

    def _remember_producer(
        self, header: BatchHeader, base_offset: int, last_offset: int, now_ms: int
    ) -> None:
        if header.producer_id != NO_PRODUCER:
            batch = SequencedBatch.at(base_offset, last_offset, header.base_sequence)
            kept = None if header.is_control else batch
            self.producers.remember(header.producer_id, header.producer_epoch, kept, now_ms)

    def _written_since_checkpoint(self) -> list[Write]:
        """Writes of nothing to every file that may need a sync."""
        return [
            Write(path, 0, [])
            for segment in self._segments
            if self._checkpointed <= segment.base_offset <= self._durable.base_offset
            for path in self._files_of(segment)
        ]

    def _files_of(self, segment: Segment) -> list[str]:
        """The files that were written for a segment since the last checkpoint."""
        suffixes = [LOG]
        if segment.base_offset < self._durable.base_offset:
            suffixes += [INDEX, TIME_INDEX]
        if segment.base_offset > self._checkpointed:
            suffixes.append(SNAPSHOT)
        return [file_of(self.directory, segment.base_offset, suffix) for suffix in suffixes]

    def _snapshot(self) -> Write:
        """The producers' state at the log's end."""
        path = file_of(self.directory, self.end_offset, SNAPSHOT)
        return Write(path, 0, [self.producers.snapshot()])

    def _end(self) -> _End:
        active = self._active
        return _End(self.end_offset, active.base_offset, active.size, active.largest(self._disk))

    def _readable(self, offset: int) -> Iterator[Readable]:
        """The segments from the one with ``offset`` on, as far as they are durable."""
        first = bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1
        end = self._durable
        for segment in self._segments[max(0, first) :]:
            if segment.base_offset < end.base_offset:
                yield Readable(segment, segment.size)
            elif segment.base_offset == end.base_offset:
                yield Readable(segment, end.position, end.largest)

    def _find(self, part: Readable, offset: int) -> Located | None:
        """The first readable batch of a segment that ends at or after ``offset``."""
        segment = part.segment
        if offset > segment.base_offset or segment is self._active:
            found = segment.find(self._disk, max(offset, segment.base_offset))
        else:
            first = segment.first(self._disk)
            found = Located(0, first.size, first.base_offset) if first else None
        return found if found and found.position < part.size else None

    def _aging(self) -> list[Aging]:
        ends = [segment.base_offset for segment in self._segments[1:]] + [self.end_offset]
        ages = (segment.largest(self._disk).timestamp_ms for segment in self._segments)
        return [
            Aging(segment.size, age if age >= 0 else self._written_ms, end, segment is self._active)
            for segment, age, end in zip(self._segments, ages, ends, strict=True)
        ]

    def _remove(self, count: int, now_ms: int) -> Step:
        """Take the first segments out of the log."""
        writes = self._roll(now_ms) if count == len(self._segments) else []
        removed, self._segments = self._segments[:count], self._segments[count:]
        first = self._segments[0]
        if self._durable.base_offset < first.base_offset:
            largest = Largest(NO_TIMESTAMP, first.base_offset)
            self._durable = _End(self.high_watermark, first.base_offset, 0, largest)
        self.log_start_offset = max(self.log_start_offset, first.base_offset)
        paths = [
            path
            for segment in removed
            for path in files_of_segment(self.directory, segment.base_offset)
        ]
        return Step(writes=writes, marker=self.marker(), removals=paths)
