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
from partage.broker.overrides import apply_overrides
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.settings import BrokerSettings
from partage.model.topic_partition import TopicPartition
from partage.testing.broker_state import read_committed, read_records
from partage.testing.settings import Settings, to_texts
from partage.testing.world.errors import InvariantError, WaitTimeoutError
from partage.testing.world.event_loop import WorldLoop
from partage.testing.world.fault import Fault, draw_fault
from partage.testing.world.network import TEST_HOST, WorldNetwork
from partage.testing.world.patches import simulated_environment
from partage.testing.world.process import Main, WorldProcess, current_process
from partage.testing.world.request_recorder import RequestRecorder
from partage.testing.world.rules import RuleChecker
from partage.testing.world.story import Story, StoryEvent

if TYPE_CHECKING:
    from partage.client.consumer.records import Record

F = TypeVar("F", bound=Callable[[], object])

#: Lag reports and group events would only lengthen the story.
_OVERRIDES: Final = {"partage.group.events.enable": "false", "offsets.topic.num.partitions": "4"}
_BROKER_PORT: Final = 9092
_CHECK_INTERVAL_S: Final = 0.05
_EVENTUALLY_S: Final = 300.0
_CLEANUP_S: Final = 3_600.0
#: How long processes may close their clients at the end.
_CLOSING_S: Final = 60.0


class PartageWorld:
    """A broker and the processes of a user's program, in virtual time, from one seed.

    Args:
        seed: determines everything that is random.
        directory: the directories of the processes are created below it.
        settings: broker settings by Kafka's names.

    Attributes:
        seed: the seed.
        directory: the directory of the world.
        rng: a generator for the test's own decisions.
        plan: the faults that `draw_faults` has drawn.
        failed_at_s: the virtual time at which the test failed, in seconds; None if it has not.
        recorder: the recorder of requests; None unless `record_requests` was called.
    """

    def __init__(self, seed: int, directory: Path, settings: Settings | None = None) -> None:
        self.seed = seed
        self.directory = directory
        self._given_settings = settings
        self.plan: list[Fault] = []
        #: Faults of the plan that do not happen, by index; for the search of the smallest plan.
        self.omitted: frozenset[int] = frozenset()
        self.failed_at_s: float | None = None
        self.recorder: RequestRecorder | None = None
        seeds = Random(seed)
        self.rng = Random(seeds.getrandbits(64))
        self._fault_rng = Random(seeds.getrandbits(64))
        self._machine_rng = Random(seeds.getrandbits(64))
        self._loop = WorldLoop(Random(seeds.getrandbits(64)))
        self._story = Story(self._loop)
        self._network = WorldNetwork(self._loop, Random(seeds.getrandbits(64)))
        self._loop.network = self._network
        self._loop.set_exception_handler(
            lambda _, event: self._story.note_current(describe_loop_error(event))
        )
        self._settings = apply_overrides(
            BrokerSettings(), {**_OVERRIDES, **to_texts(settings or {})}
        )
        self._starts: dict[str, Callable[[], WorldProcess]] = {}
        self._processes: dict[str, WorldProcess] = {}
        self._ended: list[WorldProcess] = []
        self._disk = MemoryDisk()
        self._rules = RuleChecker(self._disk, self._on_broken_rule)
        self._broker: Broker | None = None
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
        world = PartageWorld(self.seed, self.directory / subdirectory, self._given_settings)
        world.omitted = omitted
        return world

    def record_requests(self) -> None:
        """Record all requests to the broker, for the page of a failure; call it before `run`."""
        self.recorder = RequestRecorder(self._loop)

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
            simulated_environment(self._loop, self._machine_rng),
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
                self._loop.run_until_complete(self._end())
                self.close()
                self._release_objects()

    def close(self) -> None:
        """Close the event loop; `run` does it too."""
        self._loop.close()

    async def _run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._start_broker()
        await self.until(lambda: self._broker is not None, timeout_s=60)
        self._test_task = asyncio.ensure_future(test())
        try:
            await self._test_task
        except asyncio.CancelledError:
            if self._failure is None:
                raise
        if self._failure is not None:
            raise self._failure
        self.heal()
        await self.until(lambda: self._broker is not None, timeout_s=60)
        await self._live_broker().wait_loaded()
        for invariant in self._eventually:
            await self._wait_for_invariant(invariant)
        self._rules.check_end(self._live_broker())
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
            if process.is_running and process.name != self.broker and process.task is not None
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
            tasks = [t for t in asyncio.all_tasks(self._loop) if t is not asyncio.current_task()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)
        await self._loop.shutdown_asyncgens()
        self._network.close()

    def _release_objects(self) -> None:
        """Collect what killed and failed processes left open, before warnings are on again."""
        processes = [*self._processes.values(), *self._ended]
        if not self._has_passed or any(p.was_killed or p.has_failed for p in processes):
            for process in processes:
                process.task = None
            self._ended.clear()
            gc.collect()

    # Broker

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker, for clients of this world."""
        return f"broker-1:{_BROKER_PORT}"

    @property
    def broker(self) -> str:
        """The name of the broker, for `kill`, `pause`, `cut` and `restart`."""
        return "broker-1"

    def _start_broker(self) -> None:
        self._broker = None

        async def serve() -> None:
            broker = await Broker.start(
                self._disk, self._settings, host=self.broker, port=_BROKER_PORT
            )
            self._broker = broker
            self._rules.observe(broker)
            if self.recorder is not None:
                self.recorder.observe(broker)
            await asyncio.Event().wait()

        self.process(serve, name=self.broker)

    async def create_topic(
        self, name: str, partitions: int = 1, *, configs: Settings | None = None
    ) -> None:
        """Create a topic.

        Args:
            name: its name.
            partitions: the number of its partitions.
            configs: topic settings by Kafka's names.

        Raises:
            RuntimeError: the broker is not running.
            ValueError: the broker refused it; the message says why.
        """
        broker = self._live_broker()
        created = await broker.log_manager.create(name, partitions, to_texts(configs or {}))
        if isinstance(created, Refusal):
            raise ValueError(f"topic {name!r} was not created: {created.message}")

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset."""
        return read_records(self._live_broker(), self._disk, topic)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        return read_committed(self._live_broker(), group_id)

    def _live_broker(self) -> Broker:
        if self._broker is None or not self._processes[self.broker].is_running:
            raise RuntimeError("the broker is not running; use world.restart(world.broker)")
        return self._broker

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
        process.has_failed = True
        self._story.note(process.name, f"failed: {type(error).__name__}: {error}", "failed")
        if restart_after_s is None:
            self._fail(error)
        else:
            self._loop.call_later(restart_after_s, self._restart_if_down, process.name)

    def _on_process_end(self, name: str) -> None:
        self._rules.on_process_end(name)
        if self.recorder is not None:
            self.recorder.on_process_end(name)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self.failed_at_s = self._loop.elapsed_s
            if self._test_task is not None:
                self._test_task.cancel()

    def is_running(self, name: str) -> bool:
        """Return True if a process is running, paused or not."""
        return name in self._processes and self._processes[name].is_running

    # Faults

    def kill(self, name: str) -> None:
        """Kill a process, as SIGKILL does. Its directory, or the broker's disk, stays."""
        process = self._known(name)
        if process.is_running:
            self._story.note(name, "killed", "killed")
            process.kill()
            self._network.reset_connections_of(process)
            self._on_process_end(name)

    def restart(self, name: str) -> None:
        """Start a process again that was killed or has ended."""
        self._known(name)
        if name == self.broker:
            if not self.is_running(name):
                self._start_broker()
        else:
            self._starts[name]()

    def pause(self, name: str, for_s: float) -> None:
        """Stop a process for a time, as SIGSTOP and SIGCONT do.

        Args:
            name: the process.
            for_s: the time in virtual seconds.

        Raises:
            ValueError: there is no such process.
        """
        process = self._known(name)
        if process.is_running and not process.is_paused:
            self._story.note(name, f"paused for {for_s:.1f} s", "paused")
            process.pause()

            def resume() -> None:
                if process.is_paused and not process.is_killed:
                    self._story.note(name, "continued", "continued")
                process.resume()

            self._loop.call_later(for_s, resume)

    def cut(self, one: str, other: str, for_s: float | None = None) -> None:
        """Hold all bytes between two processes, for a time or until `heal`.

        Args:
            one: a process.
            other: the other process.
            for_s: the time in virtual seconds; by default until `heal`.

        Raises:
            ValueError: there is no such process.
        """
        self._known(one), self._known(other)
        self._story.note("world", f"cut {one} from {other}", "fault")
        self._network.cut(one, other)
        if for_s is not None:
            self._loop.call_later(for_s, lambda: self.heal(one, other))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End a cut, or all faults.

        Without arguments, all cuts and slow networks end, paused processes continue, and a killed
        broker restarts.

        Args:
            one: a process of the cut.
            other: the other process of the cut.
        """
        if one is not None and other is not None and self._network.is_cut(one, other):
            self._story.note("world", f"the cut between {one} and {other} is healed", "healed")
        self._network.heal(one, other)
        if one is None:
            self._network.slow_down(None)
            for process in self._processes.values():
                process.resume()
            if not self.is_running(self.broker):
                self._start_broker()
            self._story.note("world", "all faults are healed", "healed")

    def draw_faults(self, count: int, *, within_s: float, targets: list[str] | None = None) -> None:
        """Draw faults from the seed, and let them happen in the next ``within_s``.

        Killed processes are restarted after the drawn duration.

        Args:
            count: the number of faults.
            within_s: the time in which they begin, in virtual seconds.
            targets: the processes; by default all that run now, and the broker.
        """
        names = sorted(targets or self._processes)
        rng = self._fault_rng
        for _ in range(count):
            target = rng.choice(names)
            other = self.broker if target != self.broker else rng.choice(names)
            fault = draw_fault(rng, self._loop.elapsed_s, within_s, target, other)
            self.plan.append(fault)
            if len(self.plan) - 1 not in self.omitted:
                delay_s = fault.at_s - self._loop.elapsed_s
                self._loop.call_later(delay_s, self._strike, fault)

    def _strike(self, fault: Fault) -> None:
        name = fault.target
        match fault.kind:
            case "kill":
                if self.is_running(name):
                    self.kill(name)
                    self._loop.call_later(fault.for_s, lambda: self._restart_if_down(name))
            case "pause":
                self.pause(name, fault.for_s)
            case "cut":
                if name != fault.other:
                    self.cut(name, fault.other, fault.for_s)
            case "slow":
                self._story.note("world", f"slow network for {fault.for_s:.1f} s", "fault")
                self._network.slow_down(0.5)
                self._loop.call_later(fault.for_s, self._end_slow_network)

    def _end_slow_network(self) -> None:
        self._story.note("world", "the network is normal again", "healed")
        self._network.slow_down(None)

    def _restart_if_down(self, name: str) -> None:
        if not self.is_running(name):
            self.restart(name)

    def _known(self, name: str) -> WorldProcess:
        if name not in self._processes:
            known = ", ".join(sorted(self._processes))
            raise ValueError(f"there is no process {name!r}; the processes are {known}")
        return self._processes[name]

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
                name = getattr(condition, "__name__", "the condition")
                raise WaitTimeoutError(f"{name} was not true within {timeout_s:g} virtual seconds")
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def always(self, invariant: F) -> F:
        """Check an invariant every 50 ms of virtual time: a function that returns False or raises
        `AssertionError` fails the test. Use it as a decorator.
        """
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

    def _on_broken_rule(self, name: str, text: str) -> None:
        self._story.note("world", f"rule {name} is broken: {text}")
        self._fail(InvariantError(f"{name}: {text}"))


def describe_loop_error(event: dict[str, Any]) -> str:
    """Return a line about an error that no task has handled."""
    error = event.get("exception")
    text = str(event.get("message", "error in a callback"))
    return text if error is None else f"{text}: {type(error).__name__}: {error}"
