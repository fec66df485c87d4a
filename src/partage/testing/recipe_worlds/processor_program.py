"""The worlds of `Processor`: tasks that process all records of joined topics."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from partage.client.errors import ClientError
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.recipes.processor import Processor
from partage.recipes.tasks import TaskId
from partage.testing.recipe_worlds.recipe_process import InjectedError, RecipeProcess
from partage.testing.recipe_worlds.recipe_program import GROUP, RecipeProgram
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.recipe_worlds.task_rules import CheckedTask, TaskRules
from partage.testing.shell_worlds.writer import Writer
from partage.testing.world.world import PartageWorld

_JOINED: Final = ("a", "b")
_OTHER: Final = "c"
_PORT: Final = 9092
_TURN_S: Final = 0.3
_STABLE_S: Final = 15.0
_PRODUCER_ID: Final = 1_000_000
_DUE_S: Final = 20.0
#: The flushes and closes of all tasks must take less time than the poll interval.
_CLEANUP_S: Final = 0.3
_POLL_S: Final = 1.0


class ProcessorProcess(RecipeProcess):
    """A worker with a processor; it is restarted after an error of a task."""

    def __init__(
        self, name: str, world: PartageWorld, scenario: RecipeScenario, rules: TaskRules
    ) -> None:
        super().__init__(name, world, scenario)
        self.rules = rules
        self.processor: Processor | None = None

    @property
    def is_working(self) -> bool:
        return self.processor is not None and bool(self.processor.tasks)

    async def run_once(self) -> None:
        options: dict[str, Any] = {
            **self.scenario.member_options,
            "max_poll_interval_ms": max(6_000, 2 * self.scenario.session_timeout_ms),
            "max_poll_records": 7 if self.scenario.seed % 2 else 500,
        }
        processor = Processor(
            self.world.bootstrap_servers,
            GROUP,
            lambda task_id: self._create_task(processor, task_id),
            joined=_JOINED,
            topics=[_OTHER],
            commit_interval_ms=self.rng.choice((200, 1_000, 5_000)),
            **options,
        )
        await processor.start()
        self.processor = processor
        running = asyncio.ensure_future(self._run(processor))
        while not self.must_leave and not running.done():
            await asyncio.wait({running}, timeout=_TURN_S)
        if self.rng.random() < 0.5:
            processor.stop()
        else:
            running.cancel()
        await asyncio.wait({running})
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error
        await self.close(processor)
        if processor.tasks:
            self.world.break_rule("stopped", f"{self.name} has {processor.tasks} after close")
        self.processor = None

    async def close(self, recipe: Any) -> None:
        try:
            await super().close(recipe)
        except InjectedError:
            self.processor = None

    async def _run(self, processor: Processor) -> None:
        while not self.must_leave:
            try:
                await processor.run()
            except InjectedError:
                return
            except ClientError as error:
                self.report(error)
                await asyncio.sleep(_TURN_S)

    def _create_task(self, processor: Processor, task_id: TaskId) -> CheckedTask:
        if self.fails_now():
            raise InjectedError
        return CheckedTask(
            task_id,
            self,
            self.rules,
            lambda: processor.consumer.assignment(),
            lambda: processor is not self.processor,
        )


class ProcessorProgram(RecipeProgram[ProcessorProcess]):
    """The workers of a processor, and a writer of records."""

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        self.rules = TaskRules(world)
        self._written: dict[TopicPartition, int] = {}
        self._writer: Writer | None = None
        super().__init__(world, scenario)

    @property
    def work_count(self) -> int:
        return self.rules.process_count

    def create_process(self, name: str) -> ProcessorProcess:
        return ProcessorProcess(name, self.world, self.scenario, self.rules)

    @property
    def _places(self) -> list[TopicPartition]:
        counts = dict.fromkeys(_JOINED, self.scenario.units) | {_OTHER: 2}
        return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]

    @property
    def _task_ids(self) -> list[TaskId]:
        joined = [TaskId(_JOINED, number) for number in range(self.scenario.units)]
        return sorted([*joined, TaskId((_OTHER,), 0), TaskId((_OTHER,), 1)])

    async def prepare(self) -> None:
        for topic in _JOINED:
            await self.world.create_topic(topic, self.scenario.units)
        await self.world.create_topic(_OTHER, 2)
        leaders = {place: Address(self.world.leader(*place), _PORT) for place in self._places}
        rng = Random(f"writer {self.scenario.seed}")
        self._writer = Writer(
            leaders, _Written(self._written), self._places, _PRODUCER_ID, rng, 3, 0.3
        )
        self.world.process(self._writer.main, name="writer")

    def _has_all_tasks(self) -> bool:
        """True if each task is in one process, and the joined and the other ones are spread."""
        found: list[TaskId] = []
        for name, process in self.processes.items():
            if not self.world.is_running(name) or process.is_stopped:
                continue
            if process.processor is None:
                return False
            found += process.processor.tasks
        return sorted(found) == self._task_ids

    async def _wait_for_records(self, for_s: float) -> None:
        """Wait until the results of all records are durable and committed."""
        limit_s = self.world.elapsed_s + for_s
        while not self._has_processed_all():
            if self.world.elapsed_s > limit_s:
                committed = self.world.committed(GROUP)
                missing = {
                    str(place): (count, self.rules.durable_count(place), committed.get(place))
                    for place, count in self._written.items()
                }
                await self.fail("liveness", f"written, durable and committed: {missing}")
            await asyncio.sleep(_POLL_S)

    def _has_processed_all(self) -> bool:
        if any(self.rules.durable_count(p) != count for p, count in self._written.items()):
            return False
        committed = self.world.committed(GROUP)
        return all(count == committed.get(place) for place, count in self._written.items())

    async def check(self) -> None:
        assert self._writer is not None
        await self.wait("liveness", "all tasks", self._has_all_tasks, self.recovery_s)
        await asyncio.sleep(self.recovery_s)
        await self.wait("liveness", "all tasks", self._has_all_tasks, self.handover_s)
        self._writer.limit = self._writer.record_count
        await self._wait_for_records(self.recovery_s)
        self.rules.is_stable = True
        for process in self.processes.values():
            process.cleanup_s = _CLEANUP_S
        self._writer.limit += 300
        await asyncio.sleep(_STABLE_S / 2)
        name = next(iter(self.processes))
        await self.stop(name)
        await self.wait(
            "liveness", f"tasks of {name}", self._has_all_tasks, 3 * self.handover_s + _DUE_S
        )
        await asyncio.sleep(_STABLE_S / 3)
        self.start(name)
        await self.wait(
            "liveness", f"tasks for {name}", self._has_all_tasks, 3 * self.handover_s + _DUE_S
        )
        await asyncio.sleep(_STABLE_S / 3)
        self._writer.is_stopped = True
        await self._wait_for_records(_DUE_S + self.handover_s)


class _Written:
    """Counts the records that a writer has written."""

    def __init__(self, written: dict[TopicPartition, int]) -> None:
        self._written = written

    def on_written(self, partition: TopicPartition, offset: int, values: list[bytes]) -> None:
        """Note records that are acknowledged."""
        self._written[partition] = offset + len(values)
