"""Writer of group events to the topic ``__group_events``.

No request waits for it. Events arrive once they are durable. They are collected for a short time,
encoded in small slices between turns of the loop, and appended. Events that do not fit or cannot be
written are counted, and the topic says how many were dropped.

A single broker writes to the only partition of the topic. In a cluster each broker has a partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import msgspec

from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.group_events import (
    TOPIC,
    GroupEventRecord,
    LagSample,
    dropped_record,
    encode_event,
    event_records,
    lag_records,
)
from partage.wire.records.batch import Compression
from partage.wire.records.encoder import SimpleRecord, encode_batch

log = logging.getLogger(__name__)

#: Events are collected for this time, so the topic costs a few fsyncs per second at most.
LINGER_S: Final = 0.2
#: Limit for pending events, in members and units of 100 characters: a few dozen megabytes.
WEIGHT_MAX: Final = 100_000
_PAUSE_S: Final = 0.004  # after each slice of work, which takes one to two milliseconds
_EVENTS_PER_SLICE: Final = 128
_BYTES_PER_SLICE: Final = 64 * 1024
_LAGS_PER_WEIGHT: Final = 10
_BATCH_BYTES: Final = 512 * 1024
_COMPRESS_BYTES_MIN: Final = 1024
_CLOSE_TIMEOUT_S: Final = 5.0


class EventsPartition(Protocol):
    """The partition to which this broker writes."""

    async def get_or_create(self) -> Partition | Refusal:
        """Return the partition; create it if it is missing."""


class LocalEventsPartition:
    """The only partition of the topic on a single broker, so that the events are ordered."""

    def __init__(self, log_manager: LogManager) -> None:
        self._log_manager = log_manager

    async def get_or_create(self) -> Partition | Refusal:
        """Return the partition; create it if it is missing."""
        topic = await self._log_manager.auto_create(TOPIC)
        return topic if isinstance(topic, Refusal) else topic.partitions[0]


class GroupEventsWriter:
    """The only writer of ``__group_events`` on this broker; it creates the topic for the first
    event.

    Args:
        log_manager: the topics of this broker.
        place: the partition to write to; by default that of a single broker.
        broker_id: written into each event in a cluster.
        weight_max: limit for pending events.

    Attributes:
        dropped: events dropped since the start.
    """

    def __init__(
        self,
        log_manager: LogManager,
        place: EventsPartition | None = None,
        broker_id: int | None = None,
        *,
        weight_max: int = WEIGHT_MAX,
    ) -> None:
        self.dropped = 0
        self._log_manager = log_manager
        self._events_partition = place or LocalEventsPartition(log_manager)
        self._broker_id = broker_id
        self._weight_max = weight_max
        self._pending: list[tuple[GroupEvent | LagSample, int | None]] = []
        self._repeat_counts: dict[tuple[object, ...], int] = {}  # by `_repeat_key`
        self._pending_weight = 0
        self._unreported_drops = 0  # dropped events that the topic does not mention yet
        self._task: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()

    def publish(self, event: GroupEvent | LagSample, epoch: int | None = None) -> None:
        """Schedule the write of an event; never waits.

        Args:
            event: the event.
            epoch: the epoch of the group's shard.
        """
        key = None
        if isinstance(event, GroupEvent) and event.event_type is GroupEventType.COMMIT_REFUSED:
            if event.topics == (TOPIC,):
                # each such event would make its reader fetch, commit and be refused once more
                return
            key = _repeat_key(event, epoch)
            if key in self._repeat_counts:
                self._repeat_counts[key] += 1
                return
        weight = _event_weight(event)
        if self._pending_weight + weight > self._weight_max:
            self.count_dropped(1)
            return
        if key is not None:
            self._repeat_counts[key] = 1
        self._pending_weight += weight
        self._pending.append((event, epoch))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def count_dropped(self, count: int, why: str = "too many are waiting to be written") -> None:
        """Count events as dropped; the topic will say how many."""
        if not self._unreported_drops:
            log.warning("group events dropped: %s", why)
        self.dropped += count
        self._unreported_drops += count

    def prepare(self) -> None:
        """Create the partition in the background, before the first event, if it is missing."""
        self._preparing = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        try:
            place = await self._events_partition.get_or_create()
        except Exception:  # a bug; the next event tries again
            log.exception("creation of the group events partition failed")
        else:
            if isinstance(place, Refusal):
                log.warning("the group events partition does not exist yet: %s", place.message)

    async def close(self) -> None:
        """Write the pending events if that is quick, then stop."""
        self._is_closing.set()
        if self._preparing is not None:
            self._preparing.cancel()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._task

    async def _run(self) -> None:
        """Write all pending events, then end; the next event starts a new task."""
        while self._pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._is_closing.wait()
            taken, self._pending = self._pending, []
            refused, self._repeat_counts = self._repeat_counts, {}
            self._pending_weight = 0
            try:
                await self._write(taken, refused)
            except Exception:  # a bug; groups continue without their events
                log.exception("write of group events failed")
                self.count_dropped(len(taken), "the write failed")
        self._task = None

    async def _write(
        self,
        taken: list[tuple[GroupEvent | LagSample, int | None]],
        refused: Mapping[tuple[object, ...], int],
    ) -> None:
        place = await self._events_partition.get_or_create()
        if isinstance(place, Refusal):
            self.count_dropped(len(taken), place.message)
            return
        gathered: list[SimpleRecord] = []
        size = 0
        if self._unreported_drops:
            dropped, self._unreported_drops = self._unreported_drops, 0
            gathered.append(
                self._record(dropped_record(self._log_manager.wall_ms(), dropped), None)
            )
        events = worked = 0  # of this slice
        for event, epoch in taken:
            for record in _event_records(event, epoch, refused):
                if record is not None:
                    gathered.append(self._record(record, epoch))
                    events, worked = events + 1, worked + len(gathered[-1].value or b"")
                    size += len(gathered[-1].value or b"")
                if record is None or events >= _EVENTS_PER_SLICE or worked >= _BYTES_PER_SLICE:
                    events = worked = 0
                    await asyncio.sleep(0 if self._is_closing.is_set() else _PAUSE_S)
                if size >= _BATCH_BYTES:
                    await self._append(gathered)
                    gathered, size = [], 0
        if gathered:
            await self._append(gathered)

    def _record(self, event: GroupEventRecord, epoch: int | None) -> SimpleRecord:
        if self._broker_id is not None:
            event = msgspec.structs.replace(event, broker_id=self._broker_id, epoch=epoch)
        key = event.group_id.encode() or None
        return SimpleRecord(key, encode_event(event), timestamp_ms=self._log_manager.wall_ms())

    async def _append(self, records: list[SimpleRecord]) -> None:
        """Append and wait until the records are durable; records that fail are not retried."""
        is_large = sum(len(record.value or b"") for record in records) >= _COMPRESS_BYTES_MIN
        batch = encode_batch(records, compression=Compression.LZ4 if is_large else 0)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def stored(error: ErrorCode) -> None:
            if not done.done():  # the waiting task may have been cancelled at the end
                done.set_result(error)

        place = await self._events_partition.get_or_create()  # it may have been reopened since
        outcome = (
            place
            if isinstance(place, Refusal)
            else place.append(batch, stored, at_ms=self._log_manager.wall_ms(), from_client=False)
        )
        if isinstance(outcome, Refusal):
            self.count_dropped(len(records), outcome.message)
        elif error := await done:
            self.count_dropped(len(records), f"the append failed with {error.name}")


def _event_records(
    event: GroupEvent | LagSample, epoch: int | None, refused: Mapping[tuple[object, ...], int]
) -> Iterator[GroupEventRecord | None]:
    if isinstance(event, LagSample):
        yield from lag_records(event)
    elif event.event_type is GroupEventType.COMMIT_REFUSED:
        yield from event_records(event, refused.get(_repeat_key(event, epoch), 1))
    else:
        yield from event_records(event)


def _repeat_key(of: GroupEvent, epoch: int | None) -> tuple[object, ...]:
    return of.group_id, of.member_id, of.generation, of.reason, of.topics, epoch


def _event_weight(event: GroupEvent | LagSample) -> int:
    if isinstance(event, LagSample):
        return 1 + sum(map(len, event.lag.values())) // _LAGS_PER_WEIGHT
    members = len(event.progress)
    if event.group_record is not None:
        members = len(event.group_record.members)
    words = len(event.group_id) + len(event.member_id or "") + len(event.reason)
    return 1 + members + (words + sum(map(len, event.topics))) // 100
