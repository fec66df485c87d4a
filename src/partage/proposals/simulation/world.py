"""A world: one design, its coordinator, members, topics, network and clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from partage.lab.environment.clock import Clock
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.simulation.context import DesignWorldContext
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.durable_records import DurableRecords
from partage.proposals.simulation.network import DesignNetwork
from partage.proposals.simulation.observer import WorldObserver
from partage.proposals.simulation.processes import CoordinatorProcess, DesignMemberProcess
from partage.proposals.simulation.readers import Readers, RuleBroken
from partage.proposals.simulation.traffic import Traffic
from partage.wire.types import Message

_STEP_MS = 50


class WorldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a world.

    Attributes:
        topics: The partition count of each topic.
        records_per_s: Records that arrive in each partition each second.
        delay_max_ms: The longest network delay in one direction.
        disk_delay_ms: Time until the coordinator's records are durable.
        failover_ms: Time until another coordinator takes over.
        metadata_refresh_ms: How often a member refreshes its metadata.
        settle_ms: How long nothing may change before a world counts as settled.
        stale_metadata_ms: How long some brokers serve old metadata after a change of topics.
    """

    topics: dict[str, int]
    records_per_s: int = 100
    delay_max_ms: int = 2
    disk_delay_ms: int = 2
    failover_ms: int = 3_000
    metadata_refresh_ms: int = 30_000
    stale_metadata_ms: int = 0
    settle_ms: int = 15_000


class DesignWorld(DesignWorldContext):
    """A simulated group of one design.

    Args:
        design: The design.
        options: The environment.
        seed: The seed of all random draws.
        cpu_clock_ns: The clock that measures the coordinator's CPU time. The default measures none,
            so that the result depends on the seed only.
        observer: Follows the messages of the world.
    """

    def __init__(
        self,
        design: Design,
        options: WorldOptions,
        seed: int,
        cpu_clock_ns: Callable[[], int] = lambda: 0,
        observer: WorldObserver | None = None,
    ) -> None:
        self.observer: WorldObserver = WorldObserver() if observer is None else observer
        self.design = design
        self.options = options
        self.seed = seed
        self.cpu_clock_ns = cpu_clock_ns
        self.clock = Clock()
        self.network = DesignNetwork(self.clock, self.new_rng("network"), options.delay_max_ms)
        self.traffic = Traffic()
        self.readers = Readers(options.records_per_s)
        self.members: list[DesignMemberProcess] = []
        self.unsettled: dict[DesignMemberProcess, None] = {}
        self.topics = dict(options.topics)
        self._old_topics = dict(options.topics)
        self._stale_until_ms = 0
        self._rng = self.new_rng("world")
        self._records = DurableRecords(design.record_key)
        self.disk_delay_ms = options.disk_delay_ms
        self.is_rebalancing_on = True
        self._rebalancing_off_until_ms = 0
        for topic, count in self.topics.items():
            self._create_partitions(topic, range(count))
        self._coordinator_count = 0
        self.coordinator = None
        self._start_coordinator()

    coordinator: CoordinatorProcess | None

    def new_rng(self, purpose: str) -> Random:
        """Return a random generator for one purpose."""
        return Random(f"{self.seed} {purpose}")

    # Time

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        self.clock.run(for_ms)

    def run_until_stable(self, timeout_ms: int) -> bool:
        """Let time pass until every partition has one reader and no member has work to do.

        Returns:
            False if that does not happen in time.
        """
        for _ in range(0, timeout_ms, _STEP_MS):
            self.clock.run(_STEP_MS)
            if self.is_stable:
                return True
        return False

    def run_until_settled(
        self, timeout_ms: int, on_stable: Callable[[], None] = lambda: None
    ) -> bool:
        """Let time pass until the effects of a disturbance are over: the world is stable and
        nothing changes for longer than a member needs to notice a rebalance or a lost session.

        Args:
            timeout_ms: The longest time to wait.
            on_stable: Called when the world becomes stable, and at the start if it is stable then.

        Returns:
            False if that does not happen in time.
        """
        end_ms = self.clock.now_ms + timeout_ms
        quiet_ms = self.options.settle_ms
        since_ms = self.clock.now_ms
        was_stable = self.is_stable
        if was_stable:
            on_stable()
        while self.clock.now_ms < end_ms:
            self.clock.run(_STEP_MS)
            if not self.is_stable:
                since_ms, was_stable = self.clock.now_ms, False
                continue
            if not was_stable:
                was_stable = True
                on_stable()
            if self.clock.now_ms - since_ms >= quiet_ms:
                return True
        return False

    @property
    def is_stable(self) -> bool:
        """True if every partition has one reader and no member has work to do."""
        # Only members that handled an event or were paused can have become unstable.
        while self.unsettled:
            member = next(reversed(self.unsettled))
            if member.is_live and (member.is_paused or not member.machine.is_stable):
                return False
            del self.unsettled[member]
        return not self.readers.misread or not self.live_members

    @property
    def live_members(self) -> list[DesignMemberProcess]:
        """The members whose processes live and did not report an error."""
        return [each for each in self.members if each.is_live]

    # Members and coordinator

    def start_member(self, template: MemberTemplate) -> DesignMemberProcess:
        """Start a member."""
        process = DesignMemberProcess(self, template)
        self.members.append(process)
        process.handle(machine.Started(at_ms=0))
        self._schedule_refresh(process)
        return process

    def stop_member(self, process: DesignMemberProcess) -> None:
        """Close a member; its process ends when it has left."""
        process.handle(machine.LeaveRequested(at_ms=0))

    def crash_coordinator(self, *, loses_writes: bool = True, close_after_ms: int = 0) -> None:
        """Kill the coordinator. Another one loads its records after the failover time.

        Args:
            loses_writes: True if records that are not durable yet may be lost.
            close_after_ms: How long its connections stay open.
        """
        if self.coordinator is not None:
            self.coordinator.crash(loses_writes=loses_writes, close_after_ms=close_after_ms)
            self.coordinator = None
            self.clock.call_later(self.options.failover_ms, self._start_coordinator)

    def _start_coordinator(self) -> None:
        if self.coordinator is None:
            self._coordinator_count += 1
            self.coordinator = CoordinatorProcess(self, self._records, self._coordinator_count)

    def switch_rebalancing_off(self, for_ms: int) -> None:
        """Switch the rebalancing of the group off for a time, if the design can do it."""
        if self.design.can_switch_rebalancing:
            until_ms = max(self._rebalancing_off_until_ms, self.clock.now_ms + for_ms)
            self._rebalancing_off_until_ms = until_ms
            self._switch_rebalancing()
            self.clock.call_later(for_ms, self._switch_rebalancing)

    def _switch_rebalancing(self) -> None:
        is_enabled = self.clock.now_ms >= self._rebalancing_off_until_ms
        if is_enabled is not self.is_rebalancing_on:
            self.is_rebalancing_on = is_enabled
            if self.coordinator is not None:
                self.coordinator.on_rebalancing_switched(is_enabled=is_enabled)

    # Topics and metadata

    def add_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic. Members notice at their next refresh, or a coordinator at
        once if it watches the topics.
        """
        self._old_topics = dict(self.topics)
        self._stale_until_ms = self.clock.now_ms + self.options.stale_metadata_ms
        before = self.topics.get(topic, 0)
        self.topics[topic] = before + count
        self._create_partitions(topic, range(before, before + count))
        if self.design.watches_topics and self.coordinator is not None:
            self.coordinator.on_topics_changed(dict(self.topics))

    def recreate_topic(self, topic: str, count: int) -> None:
        """Delete a topic, and create it again with fewer partitions.

        Some brokers serve the old count for `WorldOptions.stale_metadata_ms`. Until a rebalance,
        members keep the partitions that no longer exist; see `Readers.delete`.
        """
        self._old_topics = dict(self.topics)
        self._stale_until_ms = self.clock.now_ms + self.options.stale_metadata_ms
        before = self.topics[topic]
        self.topics[topic] = count
        deleted = [TopicPartition(topic, number) for number in range(count, before)]
        self.readers.delete(deleted, self.clock.now_ms)

    def _create_partitions(self, topic: str, numbers: Sequence[int]) -> None:
        self.readers.create([TopicPartition(topic, each) for each in numbers], self.clock.now_ms)

    def metadata(self, rng: Random, *, is_from_coordinator: bool) -> dict[str, int]:
        """Return the topics as a broker knows them. Every other broker may be stale."""
        is_stale = self.clock.now_ms < self._stale_until_ms
        if is_stale and not is_from_coordinator and rng.random() < 0.5:
            return dict(self._old_topics)
        return dict(self.topics)

    def _schedule_refresh(self, process: DesignMemberProcess) -> None:
        interval_ms = self.options.metadata_refresh_ms

        def refresh() -> None:
            if not process.is_alive:
                return
            is_from_coordinator = process.fetches_from_coordinator
            topics = self.metadata(process._rng, is_from_coordinator=is_from_coordinator)
            process.handle(machine.PartitionCountsChanged(at_ms=0, topics=topics))
            self.clock.call_later(interval_ms, lambda: process.when_awake(refresh))

        self.clock.call_later(self._rng.randrange(interval_ms), lambda: process.when_awake(refresh))

    # Observation

    def count_message(self, message: Message) -> None:
        """Count a message of the coordinator."""
        self.traffic.count(type(message).__name__, self.design.message_size(message))

    def on_durable(self, records: Sequence[Any]) -> None:
        """Note the offsets among records that are durable."""
        for record in records:
            offset = getattr(record, "offset", None)
            if offset is not None:
                self.readers.commit(TopicPartition(record.topic, record.partition), offset)

    @property
    def broken_rules(self) -> list[RuleBroken]:
        """The guarantees that did not hold so far."""
        return self.readers.broken
