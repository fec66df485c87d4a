"""Runs one world: faults, recovery, a calm time, and the end of all clients.

After all faults each record must be read, with no gap of `_DELIVERY_S` between two of them. Then
nothing happens for a while but a few new records: they must arrive soon, and no member may rejoin,
look its coordinator up, or open connections (rule ``calm``). At last all readers close: they leave
their groups, and neither connections nor tasks stay (rule ``close``).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CoroutineType
from typing import Any, Final

from partage.broker.net.inbound_request import InboundRequest
from partage.lab.names import CONSUMER_GROUP
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.admin import WorldAdmin
from partage.testing.shell_worlds.coordinator_history import CoordinatorHistory
from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.testing.shell_worlds.drills import Drills
from partage.testing.shell_worlds.fault_phase import FaultPhase
from partage.testing.shell_worlds.fetch_retry_rules import FetchRetryRules
from partage.testing.shell_worlds.manual_reader import MANUAL_GROUP, ManualReader
from partage.testing.shell_worlds.member_rules import MemberRules
from partage.testing.shell_worlds.reader import CLOSE_S, Reader
from partage.testing.shell_worlds.result import ShellResult, judge_world
from partage.testing.shell_worlds.scenario import NEW_TOPIC, ShellScenario
from partage.testing.shell_worlds.stable_groups import PORT, StableGroups
from partage.testing.shell_worlds.wire_watch import FetchedPart, WireWatch
from partage.testing.shell_worlds.writer import Writer
from partage.testing.world.errors import WaitTimeoutError
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.world import PartageWorld
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT

_WARM_UP_S: Final = 5.0
_BACKLOG_S: Final = 60.0
#: The records that each writer writes while a member joins, and at the end.
_BURST_RECORDS: Final = 12
_LAST_RECORDS: Final = 1_000
_CHECK_S: Final = 0.25
_DELIVERY_S: Final = 60.0
#: The same if connections were at most reset, and no member left, which it may fail to tell.
_RECONNECTED_S: Final = 10.0
#: Longer than any session: killed members leave their groups before.
_STABLE_S: Final = 60.0
#: The same if no member has the default session timeout, and with the time of a slow rebalance.
_STABLE_CLASSIC_S: Final = 40.0
_LATE_COMMIT_SHARE: Final = 0.15
_LATE_COMMIT_S: Final = (0.5, 4.0)
#: The timeout of a close whose LeaveGroup is not answered in time, and the time of the answer.
_SHORT_CLOSE_MS: Final = 1_000
_LATE_LEAVE_S: Final = 5.0
_FRESH_S: Final = 3.0
_LATENCY_S: Final = 0.01
#: Longer than the way of a response to the reader.
_ARRIVAL_S: Final = 0.01
#: The most attempts to connect in a second, and the most fetches of a partition that fail, at each
#: broker.
_ATTEMPTS_MAX: Final = 25
_REFUSED_MAX: Final = 40
#: The most tasks for each consumer that do the same, such as commits.
_TASKS_MAX: Final = 8
_FIRST_PRODUCER_ID: Final = 900_000


def run_shell_world(scenario: ShellScenario) -> ShellResult:
    """Run one world in this process."""
    with TemporaryDirectory(prefix="partage-shells-") as directory:
        world = PartageWorld(
            scenario.seed,
            Path(directory),
            scenario.settings,
            brokers=scenario.brokers,
            loses_power=scenario.loses_power,
        )
        run = _ShellWorld(world, scenario)
        rule, description = judge_world(world, run.main)
    rules = run.rules
    return ShellResult(
        seed=scenario.seed,
        rule=rule,
        description=description,
        records=sum(map(len, rules.written.values())),
        reads=sum(len(each) for group in rules.read.values() for each in group.values()),
        faults=[str(fault) for fault in world.plan],
        story=world.story,
    )


class _ShellWorld:
    """One world while it runs."""

    def __init__(self, world: PartageWorld, scenario: ShellScenario) -> None:
        self._world = world
        self._scenario = scenario
        self._rng = Random(f"shell clients {scenario.seed}")
        self._watch: WireWatch
        self._is_stable = not scenario.has_faults
        world.record_requests(self._make_watch)
        self._subscriptions: dict[str, set[str]] = defaultdict(set)
        for plan in scenario.readers.values():
            self._subscriptions[plan.group] |= set(plan.topics)
        self.rules = DeliveryRules(
            lambda: world.elapsed_s,
            self._watch.commits,
            world.break_rule,
            may_repeat=scenario.has_faults or self._has_seeks or self._may_skip_commits,
            may_lose=scenario.has_faults,
            alive_s=lambda name: self._watch.last_alive_s(name),
        )
        self._member_rules = MemberRules(
            scenario.readers,
            scenario.partitions,
            self.rules,
            lambda: world.elapsed_s,
            world.break_rule,
        )
        self._fetch_retry_rules = FetchRetryRules(
            scenario.readers, self.rules, lambda: world.elapsed_s, world.break_rule
        )
        self._watch.on_request = self._on_request
        self._watch.on_rebalance = self.rules.on_rebalance
        self._watch.delay_s = self._delay_s
        self._holds: dict[tuple[str, int], float] = {}
        self._has_late_commits = False
        self._delay_rng = Random(f"delays {scenario.seed}")
        self._partition_counts = dict(scenario.partitions)
        self._manual_reader: ManualReader | None = None
        for name, plan in scenario.readers.items():
            options = plan.options
            fetch_max = min(options["fetch_max_bytes"], options["buffer_bytes_max"])
            self._watch.limits[name] = fetch_max, options["max_partition_fetch_bytes"]
        self._watch.on_fetch = self._on_fetch
        self._watch.on_join = self._on_join
        self._readers: dict[str, Reader] = {}
        self._writers: list[Writer] = []

    def _make_watch(self, loop: VirtualLoop) -> WireWatch:
        may_rewind = {plan.group for plan in self._scenario.readers.values() if plan.seeks}
        coordinators = self._coordinators = CoordinatorHistory(
            self._world.brokers,
            self._world.group_settings,
            self._world.break_rule,
            self._world.last_pause,
            has_consumer_group=any(
                plan.group == CONSUMER_GROUP for plan in self._scenario.readers.values()
            ),
        )
        self._watch = WireWatch(
            loop, self._on_process_end, self._world.break_rule, may_rewind, coordinators
        )
        return self._watch

    def _on_join(self, process: str) -> None:
        """Check that members of eager groups give all partitions up before they join."""
        self.rules.on_rebalance(self._scenario.readers[process].group)
        strategies = self._scenario.readers[process].options.get("partition_assignment_strategy")
        is_eager = strategies is not None and strategies[0] != "cooperative-sticky"
        owned = sorted(self.rules.owned(process))
        if self._is_stable and is_eager and owned:
            self._world.break_rule("callbacks", f"{process} joins, but owns {owned}")

    def _buffered(self, process: str) -> Iterator[tuple[TopicPartition, FetchedPart]]:
        """Yield the data that a consumer has got, and has not delivered."""
        for partition, place in self.rules.owned(process).items():
            for part in self._watch.fetched.get((process, partition), ()):
                is_left = place.next_offset is None or part.end > place.next_offset
                # the response to an earlier request was dropped
                if is_left and part.asked_s > place.restarted_s + _LATENCY_S:
                    yield partition, part

    def _fetched_at(self, process: str, at_s: float) -> set[TopicPartition]:
        """Return the partitions of which a consumer has had data at a time."""
        return {
            partition
            for partition, part in self._buffered(process)
            if part.answered_s + _ARRIVAL_S < at_s
        }

    def _on_fetch(self, process: str, bytes_max: int, partitions: list[TopicPartition]) -> None:
        """Check that buffered and requested data fit the buffer of a consumer."""
        plan = self._scenario.readers[process]
        # an iterator holds data besides the buffer
        if not self._is_stable or plan.iterates:
            return
        sizes: Counter[TopicPartition] = Counter()
        for partition, part in self._buffered(process):
            sizes[partition] += part.size
        partition_max = plan.options["max_partition_fetch_bytes"]
        for partition in partitions:
            if sizes[partition] >= partition_max:
                self._world.break_rule(
                    "fetch_limits",
                    f"{process} has {sizes[partition]} bytes of {partition}, and asks for more",
                )
        # A response of another broker may be larger than requested, and arrive after this request
        # was sent.
        if self._scenario.brokers > 1:
            return
        buffered, limit = sizes.total(), plan.options["buffer_bytes_max"]
        if buffered + bytes_max > limit:
            text = f"{process} has {buffered} bytes and asks for {bytes_max}; its limit is {limit}"
            self._world.break_rule("fetch_limits", text)

    @property
    def _has_seeks(self) -> bool:
        return any(plan.seeks for plan in self._scenario.readers.values())

    @property
    def _may_skip_commits(self) -> bool:
        """True if readers do not commit before a revocation: a commit fails during a rebalance."""
        styles = {plan.commits for plan in self._scenario.readers.values()}
        return not styles <= {"auto", "at_revoke"}

    def _on_process_end(self, name: str) -> None:
        self.rules.end(name)
        self._member_rules.on_process_end(name)
        self._fetch_retry_rules.on_process_end(name)
        if name in self._world.brokers:
            self._member_rules.on_broker_end()
            self._fetch_retry_rules.on_broker_end()

    def _on_request(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        if process in self._scenario.readers:
            self._member_rules.on_request(process, inbound, topic_name)
            self._fetch_retry_rules.on_request(process, inbound, topic_name)

    def _delay_s(self, process: str, inbound: InboundRequest) -> float:
        """Return the time for which a request waits at a slow coordinator."""
        if process not in self._scenario.readers:
            return 0.0
        key = inbound.api.key
        if hold_s := self._holds.get((process, key)):
            return hold_s
        rng = self._delay_rng
        is_late = self._has_late_commits and key == OFFSET_COMMIT.key
        return rng.uniform(*_LATE_COMMIT_S) if is_late and rng.random() < _LATE_COMMIT_SHARE else 0

    async def main(self) -> None:
        """The test of the world."""
        world, scenario = self._world, self._scenario
        if self._has_seeks:
            world.allow("duplicate")
        for topic, count in scenario.partitions.items():
            await world.create_topic(topic, count)
        self._coordinators.on_topics(self._watch.topics(scenario.partitions))
        self._start_writers()
        await self._write_backlog()
        flood = asyncio.create_task(self._watch_floods())
        for name, plan in scenario.readers.items():
            reader = Reader(
                name,
                plan,
                self.rules,
                world,
                Random(f"{name} {scenario.seed}"),
            )
            reader.is_calm = reader.must_close = not scenario.has_faults
            reader.may_stall = bool(scenario.faults)
            reader.fetched_at = self._fetched_at
            self._readers[name] = reader
            world.process(reader.main, name=name)
            await asyncio.sleep(self._rng.choice((0, 0, 0.3, 4)))
        self._start_manual_reader()
        await asyncio.sleep(_WARM_UP_S)
        self._has_late_commits = scenario.has_late_commits
        world.draw_faults(scenario.faults, within_s=scenario.faults_within_s)
        faults = FaultPhase(
            world,
            scenario,
            self._readers,
            self._subscriptions,
            self._rng,
            self.rules.on_removed,
        )
        await asyncio.gather(faults.run(), self._change_topics())
        await asyncio.sleep(1)
        await self._recover()
        await self._stay_calm()
        await self._close()
        flood.cancel()

    async def _watch_floods(self) -> None:
        """Check in each second that no reader repeats failing work without pauses."""
        world, refused = self._world, self._watch.refused_fetches
        attempts_max = _ATTEMPTS_MAX * len(world.brokers)
        refused_max = _REFUSED_MAX * len(world.brokers)
        while True:
            attempts = {name: world.connection_attempts(name) for name in self._readers}
            refused.clear()
            await asyncio.sleep(1)
            for broker in filter(world.is_running, world.brokers):
                if self._watch.has_lost_fetches(broker):
                    world.break_rule("close", f"fetches of lost connections wait at {broker}")
            for name, before in attempts.items():
                tried = world.connection_attempts(name) - before
                if tried > attempts_max:
                    world.break_rule("flood", f"{name} tried to connect {tried} times in a second")
            tasks = Counter(work.__qualname__ for work in _client_coroutines())
            tasks_max = _TASKS_MAX * (len(self._readers) + 1)
            for name, count in tasks.items():
                if count > tasks_max and not self._are_consumers_killed:
                    world.break_rule("flood", f"{count} tasks of consumers run {name}")
            for (name, partition), failed in refused.items():
                if name in self._readers and failed > refused_max:
                    world.break_rule(
                        "flood", f"{failed} fetches of {partition} by {name} failed in a second"
                    )

    async def _write_backlog(self) -> None:
        """Let the writers write some records without pauses, before the readers start."""
        for writer in self._writers:
            writer.hurries_to = self._scenario.backlog
        await self._world.until(
            lambda: all(writer.has_backlog for writer in self._writers), timeout_s=_BACKLOG_S
        )

    def _write_burst(self) -> None:
        """Let the writers write some records without pauses."""
        for number, writer in enumerate(self._writers):
            writer.is_stopped = False
            writer.limit = writer.hurries_to = writer.record_count + _BURST_RECORDS
            self._world.restart(f"writer-{number + 1}")

    async def _change_topics(self) -> None:
        """Add a partition to a topic, and create one that patterns match."""
        if not self._scenario.grows or len(self._world.brokers) > 1:
            return
        rng = Random(f"topics {self._scenario.seed}")
        await asyncio.sleep(rng.uniform(0, self._scenario.faults_within_s / 2))
        await self._grow_topic()
        groups = {plan.group for plan in self._scenario.readers.values() if plan.has_pattern}
        if groups:
            await asyncio.sleep(rng.uniform(0, self._scenario.faults_within_s / 2))
            self._record_topics(is_known=False)
            await self._admin.create_topic(NEW_TOPIC)
            self._on_new_partition(TopicPartition(NEW_TOPIC, 0))
            for group in groups:
                self._subscriptions[group].add(NEW_TOPIC)
            for name, plan in self._scenario.readers.items():
                if plan.has_pattern:
                    self._readers[name].topics = (*plan.topics, NEW_TOPIC)

    async def _grow_topic(self) -> None:
        """Add a partition to the topic that all readers read."""
        count = self._partition_counts["t"]
        self._record_topics(is_known=False)
        await self._admin.create_partitions("t", count + 1)
        self._on_new_partition(TopicPartition("t", count))

    def _on_new_partition(self, partition: TopicPartition) -> None:
        self._partition_counts[partition.topic] = partition.partition + 1
        self._record_topics()
        leader = Address(self._world.leader(*partition), PORT)
        self._writers[0].add(partition, leader)

    def _record_topics(self, *, is_known: bool = True) -> None:
        topics = self._watch.topics(self._partition_counts)
        self._coordinators.on_topics(topics, is_known=is_known)

    @property
    def _admin(self) -> WorldAdmin:
        return WorldAdmin(self._world)

    def _start_manual_reader(self) -> None:
        if not self._scenario.has_manual_reader:
            return
        topic = "u"
        self._subscriptions[MANUAL_GROUP] = {topic}
        has_group = self._scenario.has_manual_group
        partitions = [
            TopicPartition(topic, number) for number in range(self._partition_counts[topic])
        ]
        rng = Random(f"assigned {self._scenario.seed}")
        reader = ManualReader(
            "manual-reader", partitions, self.rules, self._world, rng, has_group=has_group
        )
        self._manual_reader = reader
        self._world.process(reader.main, name=reader.name)

    def _start_writers(self) -> None:
        world, scenario = self._world, self._scenario
        places = [
            TopicPartition(topic, number)
            for topic, count in scenario.partitions.items()
            for number in range(count)
        ]
        leaders = {place: Address(world.leader(*place), PORT) for place in places}
        for number in range(scenario.writers):
            own = places[number :: scenario.writers]
            if not own:
                continue
            writer = Writer(
                leaders,
                self.rules,
                own,
                _FIRST_PRODUCER_ID + number,
                Random(f"writer {number} {scenario.seed}"),
                scenario.batch_records,
                scenario.write_every_s,
            )
            self._writers.append(writer)
            world.process(writer.main, name=f"writer-{number + 1}")

    # After the faults

    async def _recover(self) -> None:
        world, scenario = self._world, self._scenario
        world.heal()
        self._has_late_commits = False
        assigned = self._manual_reader
        if assigned is not None:
            assigned.is_calm = True
        names = [] if assigned is None else [assigned.name]
        for name in [
            *names,
            *self._readers,
            *(f"writer-{n + 1}" for n in range(len(self._writers))),
        ]:
            if not world.is_running(name):
                world.restart(name)
        for writer in self._writers:
            writer.is_stopped = True
        for reader in self._readers.values():
            reader.is_calm = True
        is_quick = not (
            scenario.faults
            or scenario.restarts
            or scenario.connection_faults
            or scenario.disk_faults
            or scenario.brokers > 1
            or scenario.removals
            or scenario.has_late_commits
            or scenario.grows
        )
        await self._wait_for_delivery(_RECONNECTED_S if is_quick else _DELIVERY_S)

    async def _wait_for_delivery(self, timeout_s: float) -> None:
        read, read_s = -1, 0.0
        while True:
            unread = self.rules.unread(self._subscriptions)
            if not (self._is_writing or unread):
                return
            now_s = self._world.elapsed_s
            if self.rules.read_count > read:
                read, read_s = self.rules.read_count, now_s
            if now_s > read_s + timeout_s:
                what = unread or "a writer does not end"
                self._world.break_rule("delivery", f"no record in {timeout_s:g} s; unread: {what}")
                await asyncio.Event().wait()
            await asyncio.sleep(_CHECK_S)

    @property
    def _is_writing(self) -> bool:
        return any(
            self._world.is_running(f"writer-{number + 1}") for number in range(len(self._writers))
        )

    async def _stay_calm(self) -> None:
        world, watch = self._world, self._watch
        plans = self._scenario.readers.values()
        is_classic = all("session_timeout_ms" in plan.options for plan in plans)
        await asyncio.sleep(_STABLE_CLASSIC_S if is_classic else _STABLE_S)
        self._is_stable, self.rules.may_lose, self.rules.is_healthy = True, False, True
        for reader in self._readers.values():
            reader.may_fail = False
            reader.must_close = True
        groups = StableGroups(
            world,
            self._scenario,
            watch,
            self.rules,
            self._fetch_retry_rules,
            self._readers,
            self._rng,
            self._partition_counts,
        )
        await groups.check_rates()
        await groups.check_answers()
        for reader in self._readers.values():
            reader.may_fail = True
        await groups.restart_member(self._write_burst)
        if self._scenario.brokers == 1:
            await groups.restart_broker()
            await groups.reset_connections()
        drills = Drills(
            world,
            self._scenario,
            watch,
            self.rules,
            self._readers,
            groups,
            lambda name: name in self._member_rules.leaders,
            self._grow_topic,
            self._holds,
        )
        await drills.run()
        for writer in self._writers:
            writer.limit = writer.record_count + _LAST_RECORDS
        await asyncio.sleep(2 * self._scenario.write_every_s)
        for writer in self._writers:
            writer.is_stopped = True
        await self._wait_for_delivery(_FRESH_S + self._scenario.write_every_s)

    # The end

    async def _close(self) -> None:
        world = self._world
        if self._manual_reader is not None:
            self._manual_reader.is_stopped = True
        has_late_leaves = "short_close" in self._scenario.drills
        for name, reader in self._readers.items():
            reader.is_stopped, reader.may_fail = True, True  # the group rebalances
            if has_late_leaves:
                self._holds[name, LEAVE_GROUP.key] = _LATE_LEAVE_S
                reader.close_timeout_ms = _SHORT_CLOSE_MS
        slowest_s = max(plan.work_s for plan in self._scenario.readers.values())
        try:
            await world.until(
                lambda: not any(map(world.is_running, self._readers)),
                timeout_s=CLOSE_S + 2 * slowest_s + 5,
            )
        except WaitTimeoutError:
            world.break_rule("close", "a reader does not end")
            await asyncio.Event().wait()
        await asyncio.sleep(1)
        committing = dict(self._subscriptions)
        if not self._scenario.has_manual_group:
            committing.pop(MANUAL_GROUP, None)
        self.rules.check_last_commits(committing)
        self._check_leftovers()
        await asyncio.sleep(_LATE_LEAVE_S if has_late_leaves else 0)
        for group in self._subscriptions:
            static = {
                name
                for name, plan in self._scenario.readers.items()
                if plan.group == group and "group_instance_id" in plan.options
            }
            coordinator = world.coordinator(group)
            assert coordinator is not None, "the group has a coordinator"
            if (count := self._watch.member_count(group, coordinator)) > len(static):
                world.break_rule("close", f"{group} has {count} members at the end")

    @property
    def _are_consumers_killed(self) -> bool:
        """True if the tasks of killed consumers may exist: they stay until the world ends."""
        consumers = {*self._readers, "manual-reader"}
        return any(f.kind == "kill" and f.target in consumers for f in self._world.plan)

    def _check_leftovers(self) -> None:
        """Check that clients that were closed left neither tasks nor timers."""
        world = self._world
        if self._are_consumers_killed:
            return
        for work in _client_coroutines():
            world.break_rule("close", f"a task of a client is left: {work}")
        for callback in world.pending_timers():
            if (getattr(callback, "__module__", None) or "").startswith("partage.client."):
                world.break_rule("close", f"a timer of a client is left: {callback}")


def _client_coroutines() -> Iterator[CoroutineType[Any, Any, Any]]:
    """Yield the coroutines of tasks that run code of the client."""
    for task in asyncio.all_tasks():
        work = task.get_coro()
        if isinstance(work, CoroutineType) and "/partage/client/" in work.cr_code.co_filename:
            yield work
