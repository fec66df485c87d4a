"""The processes of a world: the coordinator's and the members'."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from random import Random
from typing import Any

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.machine import ConnectionId
from partage.proposals.simulation.context import Coordinator, DesignWorldContext
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.durable_records import DurableRecords
from partage.proposals.simulation.network import Link
from partage.proposals.simulation.observer import COORDINATOR
from partage.runtime.timers import TimerQueue
from partage.wire.types import Message


class Process(ABC):
    """A process with timers. It can be paused: what happens meanwhile waits."""

    def __init__(self, world: DesignWorldContext) -> None:
        self.world = world
        self.is_alive = True
        self._timers: TimerQueue[Hashable] = TimerQueue()
        self._wake_ms: int | None = None
        self._paused_until_ms = 0
        self._deferred: deque[Callable[[], None]] = deque()
        self._is_wake_scheduled = False

    def pause(self, for_ms: int) -> None:
        """Stop the process for a time, as SIGSTOP does."""
        self._paused_until_ms = max(self._paused_until_ms, self.world.clock.now_ms + for_ms)

    @property
    def is_paused(self) -> bool:
        """True while the process is stopped."""
        return self._paused_until_ms > self.world.clock.now_ms

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call now, or after the pause in the order of the calls. A dead process drops them."""
        if not self.is_alive:
            return
        if self.is_paused or self._deferred:
            self._deferred.append(call)
            self._schedule_wake()
        else:
            call()

    def _schedule_wake(self) -> None:
        if not self._is_wake_scheduled:
            self._is_wake_scheduled = True
            clock = self.world.clock
            clock.call_later(max(0, self._paused_until_ms - clock.now_ms), self._run_deferred)

    def _run_deferred(self) -> None:
        self._is_wake_scheduled = False
        while self._deferred and self.is_alive:
            if self.is_paused:
                self._schedule_wake()
                return
            self._deferred.popleft()()

    def _set_timers(self, timers: list[tuple[Any, int | None]]) -> None:
        for key, deadline_ms in timers:
            self._timers.set(key, deadline_ms)
        wake_ms = self._timers.wake_at_ms()
        if wake_ms is not None and (self._wake_ms is None or wake_ms < self._wake_ms):
            self._wake_ms = wake_ms
            clock = self.world.clock
            clock.call_later(
                max(0, wake_ms - clock.now_ms), lambda: self.when_awake(lambda: self._wake(wake_ms))
            )

    def _wake(self, wake_ms: int) -> None:
        if wake_ms != self._wake_ms:
            return
        self._wake_ms = None
        for key in self._timers.pop_due(self.world.clock.now_ms):
            self._fire(key)
        self._set_timers([])

    @abstractmethod
    def _fire(self, key: Hashable) -> None:
        """Hand a timer to the machine."""


class CoordinatorProcess(Process, Coordinator):
    """The coordinator with its connections and its durable records.

    Args:
        world: The world.
        records: The durable records of earlier coordinators, to which this one adds.
        number: Distinguishes the random draws of this coordinator from those of earlier ones.
    """

    def __init__(self, world: DesignWorldContext, records: DurableRecords, number: int) -> None:
        super().__init__(world)
        self._links: dict[ConnectionId, Link] = {}
        self._durable_ms = 0  # when all records so far are durable
        # The outcomes whose records were not stored and whose messages were not sent, each with
        # the time when its records are durable.
        self._unsent: deque[tuple[int, Any]] = deque()
        self._records = records
        self._number = number
        self._rng = world.new_rng(f"coordinator {number}")
        self.machine = world.design.coordinator()
        for record in records:
            self.machine.apply(record)
        if not world.is_rebalancing_on:
            self.on_rebalancing_switched(is_enabled=False)
        if world.design.watches_topics:
            topics = world.metadata(self._rng, is_from_coordinator=True)
            self._handle(machine.Elected(at_ms=world.clock.now_ms, topics=topics))

    def on_topics_changed(self, topics: dict[str, int]) -> None:
        """Notify the coordinator of other topics or partition counts."""
        self.when_awake(
            lambda: self._handle(
                machine.ClusterTopicsChanged(at_ms=self.world.clock.now_ms, topics=topics)
            )
        )

    def on_rebalancing_switched(self, *, is_enabled: bool) -> None:
        """Notify the coordinator that an operator switched the rebalancing on or off."""
        event = self.world.design.rebalancing_switched(is_enabled=is_enabled)
        self.when_awake(
            lambda: self._handle(msgspec.structs.replace(event, at_ms=self.world.clock.now_ms))
        )

    def accept(self, link: Link) -> None:
        self._links[link.number] = link
        link.to_coordinator = lambda message: self.when_awake(lambda: self._receive(link, message))

    def _receive(self, link: Link, message: Message | None) -> None:
        now_ms = self.world.clock.now_ms
        if message is None:
            self.world.observer.on_close(link.member, COORDINATOR)
            self._links.pop(link.number, None)
            self._handle(machine.ConnectionLost(at_ms=now_ms, connection=link.number))
        else:
            self.world.count_message(message)
            self.world.observer.on_message(link.member, COORDINATOR, message)
            self._handle(
                machine.MessageReceived(
                    at_ms=now_ms,
                    connection=link.number,
                    message=message,
                    draw=self._rng.getrandbits(64),
                )
            )

    def _fire(self, key: Hashable) -> None:
        self._handle(
            machine.TimerFired(
                at_ms=self.world.clock.now_ms, key=key, draw=self._rng.getrandbits(64)
            )
        )

    def _handle(self, event: machine.Event) -> None:
        world = self.world
        begin_ns = world.cpu_clock_ns()
        outcome = self.machine.handle(event)
        world.traffic.cpu_ns += world.cpu_clock_ns() - begin_ns
        self._set_timers(outcome.timers)
        if outcome.records:
            world.observer.on_records(outcome.records)
            self._durable_ms = max(self._durable_ms, world.clock.now_ms + world.disk_delay_ms)
        # Replies wait for all earlier records, and keep their order.
        self._unsent.append((self._durable_ms, outcome))
        self._send_durable()

    def _send_durable(self) -> None:
        """Send what is durable, and come back for the rest."""
        clock = self.world.clock
        while self._unsent and self._unsent[0][0] <= clock.now_ms:
            outcome = self._unsent.popleft()[1]
            self._store(outcome.records)
            self._send(outcome)
        if self._unsent:
            delay_ms = self._unsent[0][0] - clock.now_ms
            clock.call_later(delay_ms, lambda: self.when_awake(self._send_durable))

    def _store(self, records: list[Any]) -> None:
        if records:
            self._records.extend(records)
            self.world.on_durable(records)

    def _send(self, outcome: Any) -> None:
        for connection, message in outcome.sends:
            link = self._links.get(connection)
            if link is not None:
                self.world.count_message(message)
                self.world.observer.on_message(COORDINATOR, link.member, message)
                link.send_down(message)
        for connection in outcome.closes:
            link = self._links.pop(connection, None)
            if link is not None:
                self.world.observer.on_close(COORDINATOR, link.member)
                link.send_down(None)

    def crash(self, *, loses_writes: bool, close_after_ms: int = 0) -> None:
        """Kill the process. Its members see their connections closed.

        Args:
            loses_writes: True if only the first of the records that are not durable yet may be
                written: a random number of them. The disk writes in order, all records of an event
                or none.
            close_after_ms: Until then, the connections stay open without a response.
        """
        self.is_alive = False
        clock = self.world.clock
        writes = [(at_ms, outcome.records) for at_ms, outcome in self._unsent if outcome.records]
        written = len(writes)
        durable = sum(at_ms <= clock.now_ms for at_ms, _ in writes)
        if loses_writes and durable < written:
            written = self.world.new_rng(f"crash {self._number}").randint(durable, written)
        for _, records in writes[:written]:
            self._store(records)
        if close_after_ms:
            clock.call_later(close_after_ms, self._close_all)
        else:
            self._close_all()

    def _close_all(self) -> None:
        for link in self._links.values():
            link.send_down(None)


class DesignMemberProcess(Process):
    """A member, its connection, and the positions of the partitions that it reads."""

    def __init__(self, world: DesignWorldContext, template: MemberTemplate) -> None:
        super().__init__(world)
        self.template = template
        self.name = template.name
        self.error: str | None = None
        self.requests = 0  # since the last disturbance
        self.requests_at_start = 0  # of them, those before the last assignment
        self.machine = world.design.member(template)
        self._rng: Random = world.new_rng(template.name)
        self._link: Link | None = None
        self._is_connected = False  # the coordinator has accepted the last link
        self._following: deque[machine.Event] = deque()  # to handle after the current one
        self._reading: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}  # of partitions that are no longer read

    @property
    def is_live(self) -> bool:
        """True if the process lives and did not report an error."""
        return self.is_alive and self.error is None

    @property
    def fetches_from_coordinator(self) -> bool:
        """True if a refresh of metadata asks the coordinator instead of any broker."""
        return bool(getattr(self.machine, "fetches_from_coordinator", False))

    @property
    def reading(self) -> frozenset[TopicPartition]:
        """The partitions that the member reads."""
        return frozenset(self._reading)

    @property
    def is_reading(self) -> bool:
        """True if the member reads a partition."""
        return bool(self._reading)

    def handle(self, event: machine.Event) -> None:
        """Handle an event now; ``at_ms`` of the event does not matter."""
        self.world.unsettled[self] = None
        self._following.append(event)
        while self._following and self.is_alive:
            event = self._following.popleft()
            event = msgspec.structs.replace(event, at_ms=self.world.clock.now_ms)
            outcome = self.machine.handle(event)
            self._set_timers(outcome.timers)
            for action in outcome.actions:
                self._perform(action)
            self.world.observer.on_actions(self.name, outcome.actions, self._reading)

    def _later(self, delay_ms: int, event: machine.Event) -> None:
        self.world.clock.call_later(delay_ms, lambda: self.when_awake(lambda: self.handle(event)))

    def _fire(self, key: Hashable) -> None:
        self.handle(machine.TimerFired(at_ms=0, key=key))

    def _perform(self, action: machine.Action) -> None:
        world = self.world
        match action:
            case machine.Connect():
                self._connect()
            case machine.Disconnect():
                self._disconnect()
            case machine.Send(message=message):
                self.requests += 1
                assert self._is_connected, f"{self.name} sends {message} without a connection"
                if self._link is not None:  # else the connection was lost just now
                    self._link.send_up(message)
            case machine.FetchMetadata(is_from_coordinator=is_from_coordinator):
                topics = world.metadata(self._rng, is_from_coordinator=is_from_coordinator)
                delay_ms = 2 * world.network.delay_ms()
                self._later(delay_ms, machine.MetadataFetched(at_ms=0, topics=topics))
            case machine.StartReading(offsets=offsets):
                self.requests_at_start = self.requests
                for partition, offset in offsets.items():
                    self._reading.add(partition)
                    self._positions.pop(partition, None)
                    world.readers.start(self.name, partition, offset, world.clock.now_ms)
            case machine.ResumeReading(partitions=partitions):
                self._resume_reading(partitions)
            case machine.StopReading(partitions=partitions):
                self._stop_reading(self._reading if partitions is None else partitions)
            case machine.CommitDue(partitions=partitions):
                positions = self._take_positions(partitions)
                self._following.append(machine.PositionsTaken(at_ms=0, positions=positions))
            case machine.ReportError(reason=reason):
                self.error = reason
            case _:
                for delay_ms, event in world.design.perform(action):
                    self._later(delay_ms, event)

    def _take_positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        now_ms, readers = self.world.clock.now_ms, self.world.readers
        return {
            partition: (
                readers.end_offset(partition, now_ms)
                if partition in self._reading
                else self._positions[partition]
            )
            for partition in partitions
            if partition in self._reading or partition in self._positions
        }

    def _stop_reading(self, partitions: set[TopicPartition] | frozenset[TopicPartition]) -> None:
        now_ms = self.world.clock.now_ms
        for partition in sorted(self._reading & partitions):
            self._reading.remove(partition)
            self._positions[partition] = self.world.readers.end_offset(partition, now_ms)
            self.world.readers.stop(self.name, partition, now_ms)

    def _resume_reading(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in sorted(partitions):
            offset = self._positions.pop(partition)
            self._reading.add(partition)
            self.world.readers.start(self.name, partition, offset, self.world.clock.now_ms)

    def pause(self, for_ms: int) -> None:
        """Stop the process for a time. It reads nothing, and continues after its due timers."""
        was_paused = self.is_paused
        super().pause(for_ms)
        self.world.unsettled[self] = None
        if was_paused:
            return
        suspended = frozenset(self._reading)
        now_ms, readers = self.world.clock.now_ms, self.world.readers
        for partition in sorted(suspended):
            readers.stop(self.name, partition, now_ms)
        positions = {each: readers.end_offset(each, now_ms) for each in suspended}

        def resume() -> None:
            for partition in sorted(suspended & self._reading):
                self.world.readers.start(
                    self.name, partition, positions[partition], self.world.clock.now_ms
                )

        # The timers that became due meanwhile fire first, and so do messages that arrived.
        self.world.clock.call_later(for_ms + 1, lambda: self.when_awake(resume))

    # Connection

    def _connect(self) -> None:
        self._disconnect()
        self._is_connected = False
        world = self.world
        link = self._link = world.network.open(self.name)

        def arrive() -> None:
            coordinator = world.coordinator
            if self._link is not link or not self.is_alive:
                return
            if coordinator is None or not coordinator.is_alive or world.network.is_cut(self.name):
                answer(machine.Disconnected(at_ms=0))
                return
            link.to_member = lambda message: self.when_awake(lambda: self._receive(link, message))
            coordinator.accept(link)
            self._is_connected = True
            answer(machine.Connected(at_ms=0))

        def answer(event: machine.Event) -> None:
            def deliver() -> None:
                if self._link is link:
                    if isinstance(event, machine.Disconnected):
                        self._link = None
                    self.handle(event)

            world.clock.call_later(world.network.delay_ms(), lambda: self.when_awake(deliver))

        world.clock.call_later(world.network.delay_ms(), arrive)

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None and self._is_connected:
            link.send_up(None)

    def _receive(self, link: Link, message: Message | None) -> None:
        if self._link is not link:
            return
        if message is None:
            self._link = None
            self.handle(machine.Disconnected(at_ms=0))
        else:
            self.handle(machine.ResponseReceived(at_ms=0, message=message))

    # Faults

    def lose_connection(self) -> None:
        """Break the connection off, if there is one."""
        if self._link is not None and self._is_connected:
            self._link.break_off()

    def crash(self, *, silently: bool) -> None:
        """Kill the process. A silent crash closes no connection."""
        self._stop_reading(self._reading)
        self.is_alive = False
        link, self._link = self._link, None
        if link is not None and self._is_connected:
            if silently:
                link.drop_silently()
            else:
                link.send_up(None)
