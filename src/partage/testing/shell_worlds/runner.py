"""Runs one world: faults, recovery, a calm time, and the end of all clients.

After all faults each record must be read, with no gap of `_DELIVERY_S` between two of them. Then
nothing happens for a while but a few new records: they must arrive soon, and no member may rejoin,
look its coordinator up, or open connections (rule ``calm``). At last all readers close: they leave
their groups, and neither connections nor tasks stay (rule ``close``).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CoroutineType
from typing import Final

import msgspec

from partage.lab.environment.disk import IO_ERRORS
from partage.lab.names import CONSUMER_GROUP
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.coordinator_history import CoordinatorHistory
from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.testing.shell_worlds.reader import CLOSE_S, Reader
from partage.testing.shell_worlds.scenario import ShellScenario
from partage.testing.shell_worlds.stable_groups import PORT, StableGroups
from partage.testing.shell_worlds.wire_watch import FetchedPart, WireWatch
from partage.testing.shell_worlds.writer import Writer
from partage.testing.world.errors import InvariantError, WaitTimeoutError
from partage.testing.world.fault_injection import ConnectionFault
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.world import PartageWorld

_WARM_UP_S: Final = 5.0
#: The brokers' default session timeout in ZooKeeper.
_SESSION_S: Final = 6.0
_DISK_FAULTS: Final = tuple(sorted(IO_ERRORS))
_BACKLOG_S: Final = 60.0
_CONNECTION_FAULTS: Final[tuple[ConnectionFault, ...]] = (
    "reset",
    "stall",
    "lose_request",
    "lose_response",
)
_CHECK_S: Final = 0.25
_DELIVERY_S: Final = 60.0
#: The same if connections were at most reset, and no member left, which it may fail to tell.
_RECONNECTED_S: Final = 10.0
#: Longer than any session: killed members leave their groups before.
_STABLE_S: Final = 60.0
#: A reader may be paused or cut off while it closes.
_RESTART_S: Final = 300.0
_FRESH_S: Final = 3.0
_LATENCY_S: Final = 0.01
#: Longer than the way of a response to the reader.
_ARRIVAL_S: Final = 0.05
#: A heartbeat is up to a second old when a pause begins.
_SHORTER_S: Final = 1.2
#: The most attempts to connect in a second, and the most fetches that fail, at each broker.
_ATTEMPTS_MAX: Final = 25
_REFUSED_MAX: Final = 40
_FIRST_PRODUCER_ID: Final = 900_000


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world.

    Attributes:
        seed: Its seed.
        rule: The broken rule; None if none was broken.
        description: How it was broken.
        records: The number of records that were written.
        reads: The number of records that were read in all groups.
        faults: The drawn faults.
        story: What happened, a line for each event.
    """

    seed: int
    rule: str | None
    description: str
    records: int
    reads: int
    faults: list[str]
    story: list[str]


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
        rule, description = None, ""
        try:
            world.run(run.main)
        except InvariantError as error:
            rule, _, description = str(error).partition(": ")
        except WaitTimeoutError as error:
            rule, description = "liveness", str(error)
        except Exception as error:  # of a client or of the broker: nothing else runs
            rule, description = "failure", f"{type(error).__name__}: {error}"
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
        await asyncio.sleep(_WARM_UP_S)
        world.draw_faults(scenario.faults, within_s=scenario.faults_within_s)
        await asyncio.gather(
            self._kill_broker(),
            self._restart_readers(),
            self._pause_for_a_session(),
            self._fail_connections(),
            self._fail_disks(),
            self._fail_sessions(),
        )
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
            before = {
                name: (world.connection_attempts(name), refused[name]) for name in self._readers
            }
            await asyncio.sleep(1)
            for broker in filter(world.is_running, world.brokers):
                if self._watch.has_lost_fetches(broker):
                    world.break_rule("close", f"fetches of lost connections wait at {broker}")
            for name, (attempts, refusals) in before.items():
                tried = world.connection_attempts(name) - attempts
                failed = refused[name] - refusals
                if tried > attempts_max or failed > refused_max:
                    world.break_rule(
                        "flood",
                        f"{name} tried to connect {tried} times in a second, and {failed} of its "
                        "fetches failed",
                    )

    async def _kill_broker(self) -> None:
        """Kill the broker now and then while the faults happen, and wait for their end."""
        world, rng, scenario = self._world, self._rng, self._scenario
        begin_s = world.elapsed_s
        within_s = scenario.faults_within_s
        for after_s in sorted(rng.uniform(0, within_s) for _ in range(scenario.broker_kills)):
            await asyncio.sleep(max(0, begin_s + after_s - world.elapsed_s))
            broker = rng.choice(world.brokers)
            world.kill(broker)
            await asyncio.sleep(rng.choice((0.05, 0.5, 3)))
            if not world.is_running(broker):
                world.restart(broker)
        await asyncio.sleep(max(0, begin_s + within_s - world.elapsed_s))

    async def _restart_readers(self) -> None:
        """Let readers close and start again, one after the other, as in a rolling restart."""
        world, scenario = self._world, self._scenario
        rng = Random(f"restarts {scenario.seed}")
        for _ in range(scenario.restarts):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.restarts))
            name = rng.choice(sorted(self._readers))
            reader = self._readers[name]
            reader.is_stopped = True
            await self._wait_for_end(name)
            reader.is_stopped = False
            if not world.is_running(name):
                world.restart(name)

    async def _pause_for_a_session(self) -> None:
        """Pause readers until their session may have ended."""
        world, scenario = self._world, self._scenario
        rng = Random(f"pauses {scenario.seed}")
        for _ in range(scenario.short_pauses):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.short_pauses))
            name = rng.choice(sorted(self._readers))
            options = scenario.readers[name].options
            session_s = options.get("session_timeout_ms", 0) / 1000
            if session_s:
                world.pause(name, session_s - rng.uniform(-0.2, _SHORTER_S))

    async def _write_backlog(self) -> None:
        """Let the writers write some records without pauses, before the readers start."""
        for writer in self._writers:
            writer.hurries_to = self._scenario.backlog
        await self._world.until(
            lambda: all(writer.has_backlog for writer in self._writers), timeout_s=_BACKLOG_S
        )

    async def _fail_connections(self) -> None:
        """Let single connections of readers fail."""
        world, scenario = self._world, self._scenario
        rng = Random(f"connections {scenario.seed}")
        for _ in range(scenario.connection_faults):
            await asyncio.sleep(
                rng.uniform(0, scenario.faults_within_s / scenario.connection_faults)
            )
            name = rng.choice(sorted(self._readers))
            kind: ConnectionFault = rng.choice(_CONNECTION_FAULTS)
            world.fail_connection(name, kind, rng, for_s=rng.choice((0.5, 3, 10)))

    async def _fail_disks(self) -> None:
        """Let disks of brokers fail for some time."""
        world, scenario = self._world, self._scenario
        rng = Random(f"disks {scenario.seed}")
        for _ in range(scenario.disk_faults):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.disk_faults))
            operation, code = rng.choice(_DISK_FAULTS)
            for_s = rng.choice((0.2, 2, 6))
            world.fail_disk(rng.choice(world.brokers), operation, code, for_s)

    async def _fail_sessions(self) -> None:
        """Let the coordinator of a group lose its ZooKeeper session, or almost lose it.

        Clients reach a broker that is cut off from ZooKeeper. A broker that pauses may go on
        without knowing that another one has taken over.
        """
        world, scenario = self._world, self._scenario
        count = scenario.session_faults if len(world.brokers) > 1 else 0
        rng = Random(f"sessions {scenario.seed}")
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / count))
            broker = world.coordinator(rng.choice(sorted(self._subscriptions)))
            if broker is None or not world.is_running(broker):
                continue
            for_s = _SESSION_S * rng.choice((0.3, 0.7, 1, 1.5, 3)) * rng.uniform(0.9, 1.1)
            match rng.choice(("cut", "cut", "pause", "expire")):
                case "cut":
                    world.cut(broker, world.zookeeper, for_s)
                case "pause":
                    world.pause(broker, for_s)
                case "expire":
                    world.expire_session(broker)

    async def _wait_for_end(self, name: str) -> None:
        await self._world.until(lambda: not self._world.is_running(name), timeout_s=_RESTART_S)

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
        for name in [*self._readers, *(f"writer-{n + 1}" for n in range(len(self._writers)))]:
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
        await asyncio.sleep(_STABLE_S)
        self._is_stable, self.rules.may_lose, self.rules.is_healthy = True, False, True
        for reader in self._readers.values():
            reader.may_fail = False
            reader.must_close = True
        groups = StableGroups(world, self._scenario, watch, self.rules, self._readers, self._rng)
        await groups.check_rates()
        await groups.check_answers()
        for reader in self._readers.values():
            reader.may_fail = True
        await groups.restart_member()
        if self._scenario.brokers == 1:
            await groups.restart_broker()
            await groups.reset_connections()
        for number, writer in enumerate(self._writers):
            writer.is_stopped, writer.limit = False, 2 * writer.limit
            world.restart(f"writer-{number + 1}")
        await asyncio.sleep(2 * self._scenario.write_every_s)
        for writer in self._writers:
            writer.is_stopped = True
        await self._wait_for_delivery(_FRESH_S + self._scenario.write_every_s)

    # The end

    async def _close(self) -> None:
        world = self._world
        for reader in self._readers.values():
            reader.is_stopped, reader.may_fail = True, True  # the group rebalances
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
        self.rules.check_last_commits(self._subscriptions)
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
        if any(fault.kind == "kill" and fault.target in self._readers for fault in world.plan):
            return  # the tasks of killed processes stay until the world ends
        for task in _client_tasks():
            world.break_rule("close", f"a task of a client is left: {task.get_coro()}")
        for callback in world.pending_timers():
            if (getattr(callback, "__module__", None) or "").startswith("partage.client."):
                world.break_rule("close", f"a timer of a client is left: {callback}")


def _client_tasks() -> Iterator[asyncio.Task[object]]:
    """Yield the tasks that run code of the client."""
    for task in asyncio.all_tasks():
        work = task.get_coro()
        if isinstance(work, CoroutineType) and "/partage/client/" in work.cr_code.co_filename:
            yield task
