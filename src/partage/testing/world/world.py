"""A simulated world for a user's asyncio code: brokers, processes, faults and invariants."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from partage.broker.broker import Broker
from partage.log.disk import Disk
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.testing.settings import Settings
from partage.testing.world.brokers import WorldBrokers, check_settings, is_fault_of_surroundings
from partage.testing.world.errors import InvariantError, WaitTimeoutError
from partage.testing.world.event_loop import WorldLoop
from partage.testing.world.fault_injection import FaultInjection
from partage.testing.world.idle_polls import IdlePolls
from partage.testing.world.network import TEST_HOST, WorldNetwork
from partage.testing.world.open_clients import accept_open_clients
from partage.testing.world.patches import simulated_environment
from partage.testing.world.process import Main, WorldProcess, current_process
from partage.testing.world.request_recorder import RequestRecorder
from partage.testing.world.rules import RuleChecker
from partage.testing.world.story import DISTURBANCES, Story, StoryEvent
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.zookeeper import WorldZooKeeper

if TYPE_CHECKING:
    from partage.client.consumer.records import Record

F = TypeVar("F", bound=Callable[[], object])

_START_S: Final = 60.0
_REJOIN_S: Final = 300.0
#: A broker that cannot join its cluster is started again after this time, as by a supervisor.
_RESTART_S: Final = 1.0
_CREATE_TOPIC_S: Final = 60.0
_CHECK_INTERVAL_S: Final = 0.05
_EVENTUALLY_S: Final = 300.0
_CLEANUP_S: Final = 3_600.0
#: How long processes may close their clients at the end.
_CLOSING_S: Final = 60.0


class PartageWorld(FaultInjection):
    """Brokers and the processes of a user's program, in virtual time, from one seed.

    Args:
        seed: determines everything that is random.
        directory: the directories of the processes are created below it.
        settings: broker settings by Kafka's names.
        brokers: the number of brokers. Several brokers are a cluster that shares its groups and
            transactions in a simulated ZooKeeper.
        loses_power: the disk of a killed broker loses any part of what was not synced.

    Attributes:
        seed: the seed.
        directory: the directory of the world.
        rng: a generator for the test's own decisions.
        failed_at_s: the virtual time at which the test failed, in seconds; None if it has not.
        recorder: the recorder of requests; None unless `record_requests` was called.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        settings: Settings | None = None,
        *,
        brokers: int = 1,
        loses_power: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        check_settings(settings or {})  # before the event loop, which nothing would close
        self.seed = seed
        self.directory = directory
        self._given_settings = settings
        self.failed_at_s: float | None = None
        self.recorder: RequestRecorder | None = None
        seeds = Random(seed)
        self.rng = Random(seeds.getrandbits(64))
        fault_rng = Random(seeds.getrandbits(64))
        self._machine_rng = Random(seeds.getrandbits(64))
        super().__init__(WorldLoop(Random(seeds.getrandbits(64))), fault_rng)
        self._story = Story(self._loop)
        self._network = WorldNetwork(self._loop, Random(seeds.getrandbits(64)))
        self._loop.network = self._network
        self._loop.set_exception_handler(
            lambda _, event: self._story.note_current(describe_loop_error(event))
        )
        self._zookeeper = None
        if brokers > 1:
            rng = Random(seeds.getrandbits(64))
            self._zookeeper = WorldZooKeeper(self._loop, self._network, self._story, rng)
        self._brokers = WorldBrokers(
            brokers,
            settings or {},
            self._zookeeper,
            self._on_broker_started,
            Random(f"power {seed}") if loses_power else None,
        )
        self._loses_power = loses_power
        self._ended: list[WorldProcess] = []
        self._idle_polls = IdlePolls(self._loop, self._network)
        self._rules = RuleChecker(self._brokers, self.break_rule, self._loop.time)
        self._always: list[Callable[[], object]] = []
        self._eventually: list[Callable[[], object]] = []
        self._failure: BaseException | None = None
        self._has_passed = False
        self._test_task: asyncio.Task[Any] | None = None

    def fresh(self, omitted: frozenset[int], subdirectory: str) -> PartageWorld:
        """Return a new world of the same seed in which some faults of the plan do not happen.

        Args:
            omitted: the indexes of these faults in the plan.
            subdirectory: the directory of the new world, below that of this one.
        """
        world = PartageWorld(
            self.seed,
            self.directory / subdirectory,
            self._given_settings,
            brokers=len(self.brokers),
            loses_power=self._loses_power,
        )
        world.omitted = omitted
        return world

    def record_requests(
        self, make_recorder: Callable[[VirtualLoop], RequestRecorder] = RequestRecorder
    ) -> None:
        """Record all requests to the broker, for the page of a failure; call it before `run`.

        Args:
            make_recorder: returns a recorder for the loop of this world.
        """
        self.recorder = make_recorder(self._loop)
        self._brokers.broker_class = self.recorder.broker_class

    @property
    def group_settings(self) -> GroupSettings:
        """The brokers' settings of groups."""
        return self._brokers.group_settings

    # Running

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test coroutine in this world, then check the invariants and end all processes.

        Raises:
            InvariantError: an invariant does not hold.
            Exception: whatever the test raises, or a process that failed.
        """
        with (
            warnings.catch_warnings(),
            self._story.collecting_logs(),
            simulated_environment(self._loop, self._machine_rng, self._process_clocks),
        ):
            # Processes that were killed or failed leave connections and clients open.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                self._loop.run_until_complete(self._run(test))
            except BaseException:
                if self.failed_at_s is None:
                    self.failed_at_s = self._loop.elapsed_s
                raise
            finally:
                self._accept_open_clients()
                self._loop.run_until_complete(self._end())
                self.close()
                self._release_objects()

    def close(self) -> None:
        """Close the event loop; `run` does it too."""
        self._loop.close()

    async def _run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        for name in self.brokers:
            self._start_broker(name)
        await self.until(self._all_brokers_have_started, timeout_s=_START_S)
        self._test_task = asyncio.ensure_future(test())
        try:
            await self._test_task
        except asyncio.CancelledError:
            if self._failure is None:
                raise
        if self._failure is not None:
            raise self._failure
        self.heal()
        await self.until(self._all_brokers_have_started, timeout_s=_REJOIN_S)
        await self._brokers.wait_loaded()
        for invariant in self._eventually:
            await self._wait_for_invariant(invariant)
        self._rules.check_end()
        if self._failure is not None:
            raise self._failure
        self._has_passed = True

    async def _wait_for_invariant(self, invariant: Callable[[], object]) -> None:
        try:
            await self.until(invariant, timeout_s=_EVENTUALLY_S)
        except WaitTimeoutError:
            name = getattr(invariant, "__name__", "invariant")
            raise InvariantError(
                f"{name} did not hold within {_EVENTUALLY_S:g} s after all faults were healed"
            ) from None

    async def _end(self) -> None:
        """Cancel all tasks; those of killed processes too, so that none is left pending.

        If the test has passed, running processes come first, so that their clients are closed while
        the broker runs.
        """
        running = [
            process.task
            for process in self._processes.values()
            if process.is_running and process.name not in self.brokers and process.task is not None
        ]
        for process in [*self._processes.values(), *self._ended]:
            process.is_killed = process.is_paused = False
            process.has_ended = True
        self._always.clear()
        if running and self._has_passed:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=_CLOSING_S)
        limit_s = self._loop.time() + _CLEANUP_S
        while self._loop.time() < limit_s:
            tasks = self._loop.pending_tasks()
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            for process in [*self._processes.values(), *self._ended]:
                self._loop.make_ready(process.take_lost_steps())
            await asyncio.wait(tasks, timeout=10)
        await self._loop.shutdown_asyncgens()
        self._network.close()

    def _accept_open_clients(self) -> None:
        """Let clients be collected without warnings after faults or a failure."""
        if not self._has_passed or any(e.kind in DISTURBANCES for e in self._story.events):
            accept_open_clients(self._loop)

    def _release_objects(self) -> None:
        """Collect what clients left open after faults, before warnings are on again."""
        if self._loop.leaves_clients_open:
            for process in [*self._processes.values(), *self._ended]:
                process.task = None
            self._ended.clear()
            gc.collect()

    # Brokers

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers, for clients of this world."""
        return self._brokers.addresses

    def _start_broker(self, name: str) -> None:
        self.process(self._brokers.main(name), name=name)

    def _all_brokers_have_started(self) -> bool:
        return self._brokers.has_started

    def _on_broker_started(self, broker: Broker, disk: Disk) -> None:
        self._idle_polls.observe(broker, disk)
        self._rules.observe(broker)
        if self.recorder is not None:
            self.recorder.observe(broker)

    def coordinator(self, group_id: str) -> str | None:
        """Return the name of the broker that coordinates a group; None if no broker does now."""
        return self._brokers.coordinator(group_id)

    def leader(self, topic: str, partition: int) -> str:
        """Return the name of the broker that has a partition, whether it is running or not.

        Args:
            topic: the topic.
            partition: the number of the partition.

        Raises:
            LookupError: the topic or the partition does not exist.
            RuntimeError: no broker is running.
        """
        return self._brokers.leader(topic, partition)

    async def create_topic(
        self, name: str, partitions: int = 1, *, configs: Settings | None = None
    ) -> None:
        """Create a topic.

        Args:
            name: its name.
            partitions: the number of its partitions.
            configs: topic settings by Kafka's names.

        Raises:
            RuntimeError: no broker is running.
            TimeoutError: the broker was killed or paused meanwhile.
            ValueError: the broker refused it; the message says why.
        """
        broker = self._brokers.any_running()
        work = self._brokers.create_topic(broker, name, partitions, configs or {})
        if self._zookeeper is None:
            await work
            return
        context = self._processes[broker].context.copy()  # its tasks belong to the broker
        async with asyncio.timeout(_CREATE_TOPIC_S):
            await self._loop.create_task(work, context=context)

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset.

        Raises:
            LookupError: the topic does not exist.
            RuntimeError: a broker that has some of them is not running.
        """
        return self._brokers.records(topic)

    def visible_offsets(self, partition: TopicPartition) -> set[int]:
        """Return the offsets of a partition's records, without open and aborted transactions.

        They are empty if the partition does not exist.
        """
        return set(self._brokers.offsets(partition, only_visible=True))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group.

        Raises:
            RuntimeError: no broker coordinates the group now.
        """
        return self._brokers.committed(group_id)

    # Processes

    def process(
        self, main: Main, *, name: str, restart_after_s: float | None = None
    ) -> WorldProcess:
        """Start a process that runs a coroutine function.

        Args:
            main: the coroutine function. `restart` calls it again.
            name: its name, which is also its host name.
            restart_after_s: if the process fails with an exception, it starts again after this
                time, as a supervisor does. By default an exception fails the test.

        Returns:
            The process.

        Raises:
            ValueError: a process of this name is running.
        """
        running = self._processes.get(name)
        if running is not None and running.is_running:
            raise ValueError(f"a process named {name!r} is already running")
        directory = self.directory / name
        directory.mkdir(parents=True, exist_ok=True)
        process = WorldProcess(self._loop, name, directory)
        if running is not None:
            self._ended.append(running)
        self._starts[name] = partial(self.process, main, name=name, restart_after_s=restart_after_s)
        self._processes[name] = process
        self._story.note(name, "started", "started")
        process.start(main)
        assert process.task is not None
        process.task.add_done_callback(lambda task: self._on_ended(process, task, restart_after_s))
        return process

    def _on_ended(
        self, process: WorldProcess, task: asyncio.Task[Any], restart_after_s: float | None
    ) -> None:
        if process.is_killed or process.has_ended or task.cancelled():
            return
        self._network.reset_connections_of(process)
        self._on_process_end(process.name)
        error = task.exception()
        if error is None:
            self._story.note(process.name, "ended", "ended")
            return
        self._story.note(process.name, f"failed: {type(error).__name__}: {error}", "failed")
        if process.name in self.brokers:
            process.kill()  # the end of its main coroutine ends the process
            if is_fault_of_surroundings(error):
                restart_after_s = _RESTART_S
        if restart_after_s is None:
            self._fail(error)
        else:
            self._loop.call_later(restart_after_s, self._restart_if_down, process.name)

    def _on_process_end(self, name: str) -> None:
        self._brokers.on_end(name)
        self._rules.on_process_end(name)
        if self.recorder is not None:
            self.recorder.on_process_end(name)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self.failed_at_s = self._loop.elapsed_s
            if self._test_task is not None:
                self._test_task.cancel()

    def connection_count(self, name: str) -> int:
        """Return the number of open connections of a process, clients and servers together."""
        return self._network.connection_count(name)

    def connection_attempts(self, name: str) -> int:
        """Return how often a process has tried to connect."""
        return self._network.attempts[name]

    def pending_timers(self) -> list[Callable[..., object]]:
        """Return the functions of all timers that are set in the world."""
        return self._loop.pending_timers()

    def last_pause(self, name: str) -> tuple[float, float]:
        """Return begin and end of the last pause of a process, in virtual seconds.

        Both are 0 without a pause. A pause that has not ended ends before it began.
        """
        process = self._processes[name]
        return process.paused_s, process.resumed_s

    # Conditions and invariants

    @property
    def elapsed_s(self) -> float:
        """The virtual time since the start of the world, in seconds."""
        return self._loop.elapsed_s

    @property
    def story(self) -> list[str]:
        """The lines of what happened so far: time, process, event."""
        return self._story.lines

    @property
    def events(self) -> list[StoryEvent]:
        """The events of the story."""
        return self._story.events

    def note(self, text: str) -> None:
        """Add a line to the story, for the process that calls it."""
        self._story.note_current(text)

    async def until(
        self, condition: Callable[[], object | Awaitable[object]], *, timeout_s: float = 60.0
    ) -> None:
        """Wait until a condition is true; it is evaluated every 50 ms of virtual time.

        Args:
            condition: a function or coroutine function without parameters.
            timeout_s: the longest time to wait, in virtual seconds.

        Raises:
            WaitTimeoutError: it was not true in time.
        """
        limit_s = self._loop.time() + timeout_s
        while True:
            result = condition()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return
            if self._loop.time() >= limit_s:
                name = getattr(condition, "__name__", "the condition").lstrip("_")
                raise WaitTimeoutError(f"{name} was not true within {timeout_s:g} virtual seconds")
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def always(self, invariant: F) -> F:
        """Check an invariant every 50 ms of virtual time: a function that returns False or raises
        `AssertionError` fails the test. Use it as a decorator.

        Raises:
            TypeError: the invariant is a coroutine function.
        """
        if inspect.iscoroutinefunction(invariant):
            name = getattr(invariant, "__name__", "invariant")
            raise TypeError(f"{name!r} is a coroutine function: always() takes a plain function")
        if not self._always:
            self._loop.call_later(_CHECK_INTERVAL_S, self._check_always)
        self._always.append(invariant)
        return invariant

    def _check_always(self) -> None:
        for invariant in self._always:
            name = getattr(invariant, "__name__", "invariant")
            try:
                holds = invariant()
            except AssertionError as error:
                self._story.note("world", f"{name} failed: {error}", "violation")
                self._fail(error)
                return
            if holds is False:
                self._story.note("world", f"{name} does not hold", "violation")
                self._fail(InvariantError(f"{name} does not hold at {self.elapsed_s:.3f} s"))
                return
        if self._always:
            self._loop.call_later(_CHECK_INTERVAL_S, self._check_always)

    def eventually(self, invariant: F) -> F:
        """Check that an invariant becomes true at the end, after all faults are healed.

        Use it as a decorator.
        """
        self._eventually.append(invariant)
        return invariant

    # Rules

    def processed(self, record: Any, *, group: str = "") -> None:
        """Note that a record was processed; the rules about processing need these notes.

        Call it where the effect of a record becomes visible, for example in a stand-in for the
        user's database. Topics without notes are not checked by these rules.

        Args:
            record: a record of any client; its ``topic``, ``partition`` and ``offset`` count.
            group: the consumer group for which it was processed. By default, the only group of the
                process; if it is in no group or in several, the record counts for all.
        """
        process = current_process.get()
        name = TEST_HOST if process is None else process.name
        partition = TopicPartition(record.topic, record.partition)
        self._rules.on_processed(name, partition, record.offset, group)

    def allow(self, *rules: str) -> None:
        """Do not check some rules in this world, such as ``"reordered"``.

        Raises:
            ValueError: there is no rule of that name; the message lists them.
        """
        self._rules.allow(*rules)

    def break_rule(self, name: str, text: str) -> None:
        """Fail this world because of a broken rule.

        Args:
            name: the rule.
            text: how it was broken.
        """
        self._story.note("world", f"rule {name} is broken: {text}")
        self._fail(InvariantError(f"{name}: {text}"))


def describe_loop_error(event: dict[str, Any]) -> str:
    """Return a line about an error that no task has handled."""
    error = event.get("exception")
    text = str(event.get("message", "error in a callback"))
    return text if error is None else f"{text}: {type(error).__name__}: {error}"
