"""The engine of both consumers: a fetch state machine under a lock, and a thread that fetches.

Operations without I/O (`seek`, `pause`, collecting fetched records) run at once in the caller's
thread, under the lock. No thread waits while it holds the lock. Operations with I/O are coroutines
for the engine's event loop, which runs in a background thread, independent of user code.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from partage.client.cluster import Cluster
from partage.client.consumer.api_time_limit import ApiTimeLimit
from partage.client.consumer.assignment_source import (
    AssignmentSource,
    AssignmentTarget,
    ManualAssignment,
)
from partage.client.consumer.deadline import Deadline
from partage.client.consumer.errors import ConsumerClosedError, PositionTimeoutError
from partage.client.consumer.fetch_state_machine import FetchStateMachine, RecordRange
from partage.client.consumer.fetcher import Fetcher
from partage.client.consumer.options import ConsumerOptions
from partage.client.consumer.partition_state import ResetTarget
from partage.client.loop_thread import start_loop
from partage.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition

T = TypeVar("T")


class Engine(AssignmentTarget):
    """The engine of one consumer. Its thread runs until `close`.

    Attributes:
        assignment_source: It can be replaced when no partitions are assigned.
        cluster: Use it on the engine's event loop only.
        is_close_called: True after the first call of `close`.
    """

    def __init__(
        self,
        servers: list[Address],
        options: ConsumerOptions,
        client: ClientOptions,
        owner: AssignmentSource | None = None,
    ) -> None:
        self.options = options
        self.assignment_source = owner or ManualAssignment()
        self._lock = threading.Lock()
        self.assignment_source.attach(self)
        self._positions = FetchStateMachine(
            policy=options.reset,
            partition_bytes=options.max_partition_fetch_bytes,
            fetch_bytes=options.fetch_max_bytes,
            buffer_bytes=options.buffer_bytes_max,
            replica_lifetime_ms=client.metadata_max_age_ms,
        )
        self.cluster = Cluster(servers, client)
        self._fetcher = Fetcher(
            self.cluster,
            self._positions,
            self._lock,
            options,
            committed=lambda partitions: self.assignment_source.committed(partitions),
            changed=self._notify_waiters,
            failed=self._fail,
        )
        self._failure: Exception | None = None
        self._version = 0
        self._waiters: list[Future[None]] = []
        self._is_closed = False
        self.is_close_called = False
        self._is_wake_scheduled = False
        self._thread = start_loop("partage-consumer", cleanup=self._clean_up)
        self._loop = self._thread.call(_running_loop())
        self._thread.call(self._fetcher.start())

    # The `AssignmentTarget` interface; `BaseConsumer.assign` uses it too.

    def add_partitions(
        self,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Start to read these partitions; those assigned already continue unchanged."""
        with self._lock:
            self._check_open()
            self._positions.add_partitions(partitions, topic_ids)
        self._wake_fetcher()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; none of their records is delivered afterwards."""
        with self._lock:
            self._positions.remove_partitions(partitions)
        self._wake_fetcher()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, sorted."""
        with self._lock:
            return self._positions.owned

    def is_empty(self) -> bool:
        """True if no partitions are assigned."""
        return not self._positions

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions: the offset after the last delivered record, by partition."""
        with self._lock:
            found = {p: self._positions.position(p) for p in self._positions.owned}
        return {p: position for p, position in found.items() if position is not None}

    def identified_positions(self) -> dict[TopicPartition, tuple[int, bytes | None]]:
        """Return the positions with the ids of their topics, None where an id is not known."""
        with self._lock:
            owned = self._positions.owned
            found = {p: (self._positions.position(p), self._positions.topic_id(p)) for p in owned}
        return {p: (at, topic_id) for p, (at, topic_id) in found.items() if at is not None}

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the known ids of the topics of some partitions."""
        with self._lock:
            found = {p: self._positions.topic_id(p) for p in partitions}
        return {p: topic_id for p, topic_id in found.items() if topic_id is not None}

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """True if an assigned partition belongs to another topic than the one of this id."""
        with self._lock:
            return self._positions.is_topic_replaced(partition, topic_id)

    def wake(self) -> None:
        """Wake waiting polls and the fetcher."""
        self._notify_waiters()
        self._wake_fetcher()

    # User requests. All raise NotAssignedError and ConsumerClosedError.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        with self._lock:
            self._check_open()
            self._positions.seek(partition, offset)
        self._wake_fetcher()

    def reset(self, partitions: Iterable[TopicPartition] | None, to: ResetTarget) -> None:
        """Continue at an end or a timestamp, in all partitions if ``partitions`` is None."""
        with self._lock:
            self._check_open()
            self._positions.reset(self._positions.owned if partitions is None else partitions, to)
        self._wake_fetcher()

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Pause or resume partitions."""
        with self._lock:
            self._check_open()
            self._positions.pause(partitions, paused=paused)
        self._notify_waiters()
        self._wake_fetcher()

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions, sorted."""
        with self._lock:
            return self._positions.paused

    def position(self, partition: TopicPartition, deadline: Deadline) -> int | None:
        """Return the offset of the next record to deliver; None while it is looked up.

        Raises:
            PositionTimeoutError: It is not known yet, and the deadline has passed.
            ClientError: The lookup failed.
        """
        with self._lock:
            self._check_open()
            position = self._positions.position(partition)
            failure = last_error = None
            if position is None:
                last_error = self._positions.state(partition).last_error
                failure = self._positions.pop_error(partition) or self._pop_failure()
        if failure is not None:
            self._wake_fetcher()
            raise failure
        if position is None and deadline.is_expired:
            raise PositionTimeoutError(partition, self.default_api_timeout_ms, last_error)
        return position

    @property
    def default_api_timeout_ms(self) -> int:
        """The option ``default_api_timeout_ms``."""
        return self.cluster.options.retries.timeout_ms

    # Records.

    def collect(
        self, records_max: int | None, *, parts_max: int | None = None, is_lent: bool = False
    ) -> list[RecordRange]:
        """Return fetched records that may be delivered, and advance the positions past them.

        Ranges that are lent need a later `put_back`.

        Raises:
            ClientError: There is an error, and no record can be delivered.
        """
        with self._lock:
            self._check_open()
        self.assignment_source.on_poll()
        failure: Exception | None = None
        with self._lock:
            self._check_open()
            taken = self._positions.collect(
                records_max, self.assignment_source.may_deliver, parts_max=parts_max
            )
            if is_lent:
                for one in taken:
                    one.permit.delivered_offset = one.from_offset
            if not taken:
                failure = self._positions.pop_error() or self._pop_failure()
            may_start_work = failure is not None or (
                bool(taken) and self._positions.awaits_delivery
            )
        if may_start_work:
            self._wake_fetcher()
        if failure is not None:
            raise failure
        return taken

    def collect_one(self, records_max: int | None) -> RecordRange | None:
        """Return one range of records for a `RecordCursor`; `put_back` must follow."""
        taken = self.collect(records_max, parts_max=1, is_lent=True)
        return taken[0] if taken else None

    def put_back(self, taken: RecordRange, from_offset: int) -> None:
        """Put the rest of a range back, from an offset on."""
        with self._lock:
            taken.permit.delivered_offset = None
            self._positions.put_back(taken, from_offset)
            may_start_work = self._positions.awaits_delivery
        if may_start_work:
            self._wake_fetcher()

    def deliver_last(self, partition: TopicPartition) -> None:
        """Deliver the records of the other partitions before those of this one."""
        with self._lock:
            self._positions.deliver_last(partition)

    @property
    def version(self) -> int:
        """A number that changes whenever there may be something new; read it before checking."""
        return self._version

    def next_change(self, since: int) -> Future[None]:
        """Return a future that is done once `version` differs from ``since``."""
        waiter: Future[None] = Future()
        with self._lock:
            if self._version != since or self._is_closed:
                waiter.set_result(None)
            else:
                self._waiters = [*(one for one in self._waiters if not one.done()), waiter]
        return waiter

    # Requests to brokers: coroutines for the engine's event loop; see `submit`.

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's event loop; raise ConsumerClosedError after `close`."""
        if self._is_closed:
            work.close()
            raise ConsumerClosedError
        return self._thread.submit(work)

    def earlier_events(self) -> Future[None]:
        """Return a future that is done when the event loop has handled all earlier events."""
        return self.submit(_do_nothing())

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each timestamp (ms, or EARLIEST or LATEST)."""
        committed = self.options.isolation_level == "read_committed"
        async with self.time_limit("the lookup of offsets") as limit:
            return await list_offsets(
                self.cluster, wanted, read_committed=committed, on_failure=limit.note
            )

    async def offsets_at(self, partitions: Iterable[TopicPartition], end: int) -> dict[Any, int]:
        """Return one end of each partition, ``EARLIEST`` or ``LATEST``."""
        found = await self.offsets_for_times(dict.fromkeys(partitions, end))
        return {partition: offset.offset for partition, offset in found.items() if offset}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self.offsets_at(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, or the last stable offset."""
        return await self.offsets_at(partitions, LATEST)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic, sorted; raise UnknownTopicError if there is none."""
        async with self.time_limit(f"the lookup of topic {topic!r}"):
            return (await self.cluster.topics([topic], fresh=True))[topic].topic_partitions

    def time_limit(self, what: str) -> ApiTimeLimit:
        """Return the time limit of a user's call."""
        return ApiTimeLimit(what, self.default_api_timeout_ms)

    def close(self, timeout_ms: float) -> None:
        """Stop deliveries, close the assignment source and end the thread; wait for all of it."""
        self.is_close_called = True
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            owned = self._positions.owned
        try:
            self._thread.call(self._shut_down(timeout_ms))
        finally:
            with self._lock:
                self._positions.remove_partitions(owned)
            self._thread.stop()
            self._notify_waiters()

    def abandon(self) -> bool:
        """End the thread of a consumer that was not closed; return False if it was, or by a fork.

        A finalizer may call it in any thread, also in one that holds the lock.
        """
        if self.is_close_called or not self._thread.is_of_this_process:
            return False
        self._thread.abandon()
        return True

    async def _clean_up(self) -> None:
        self._is_closed = True
        await self._shut_down(0)

    async def _shut_down(self, timeout_ms: float) -> None:
        await self._fetcher.stop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.assignment_source.close(timeout_ms)
        finally:
            self.cluster.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosedError

    def _pop_failure(self) -> Exception | None:
        failure, self._failure = self._failure, None
        return failure

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._failure = error
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Complete the futures of all callers that wait for a change."""
        with self._lock:
            self._version += 1
            waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            with suppress(InvalidStateError):  # The waiter was cancelled.
                waiter.set_result(None)

    def _wake_fetcher(self) -> None:
        if not self._is_wake_scheduled and not self._is_closed:
            self._is_wake_scheduled = True
            with suppress(RuntimeError):  # The loop was closed concurrently.
                self._loop.call_soon_threadsafe(self._on_wake)

    def _on_wake(self) -> None:
        self._is_wake_scheduled = False
        self._fetcher.wake()


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def _do_nothing() -> None:
    """Run after the earlier events of the event loop."""
