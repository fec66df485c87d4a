"""The rules about the tasks of a processor."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from partage.client.consumer.records import Record
from partage.model.topic_partition import TopicPartition
from partage.recipes.tasks import Task, TaskId
from partage.testing.recipe_worlds.recipe_process import InjectedError, RecipeProcess
from partage.testing.world.process import WorldProcess, current_process
from partage.testing.world.world import PartageWorld


class TaskRules:
    """The rules about tasks.

    ``calls``: methods of a task run one at a time, and none after `close`. ``complete``: a member
    has all partitions of a task when it is created. ``order``: offsets of a partition follow each
    other while a task has it. ``two_tasks`` and ``repeat``, while there are no faults: one process
    at a time has a task, and no record is processed twice. ``flush``: the last call before `close`
    is `flush`, unless the partitions are lost or the task has failed.

    Args:
        world: The world.
    """

    def __init__(self, world: PartageWorld) -> None:
        self.world = world
        #: True while there are no faults.
        self.is_stable = False
        self.process_count = 0
        self._open: dict[TaskId, list[CheckedTask]] = {}
        self._processed: Counter[tuple[str, int, int]] = Counter()
        self._durable: dict[TopicPartition, set[int]] = {}

    def break_rule(self, rule: str, text: str) -> None:
        """Break a rule."""
        self.world.break_rule(rule, text)

    def on_created(self, task: CheckedTask) -> None:
        """Note a new task."""
        others = self.open_tasks(task.id)
        if any(other.host is task.host for other in others):
            self.break_rule("two_tasks", f"{task} was created beside {others}")
        if others and self.is_stable:
            self.break_rule("two_tasks", f"{task} was created beside {others}")
        self._open.setdefault(task.id, []).append(task)

    def on_closed(self, task: CheckedTask) -> None:
        """Note the end of a task."""
        self._open[task.id].remove(task)

    def open_tasks(self, task_id: TaskId) -> list[CheckedTask]:
        """Return the tasks of an id whose processes run."""
        found = [
            task
            for task in self._open.get(task_id, ())
            if not task.host.is_killed and not task.host.has_ended and not task.is_abandoned()
        ]
        self._open[task_id] = found
        return list(found)

    def on_processed(self, record: Record) -> None:
        """Note a record that was processed, perhaps not durably."""
        self.process_count += 1
        key = record.topic, record.partition, record.offset
        self._processed[key] += 1
        if self.is_stable and self._processed[key] > 1:
            self.break_rule("repeat", f"{key} was processed {self._processed[key]} times")

    def on_durable(self, record: Record) -> None:
        """Note that the result of a record is durable."""
        place = TopicPartition(record.topic, record.partition)
        self._durable.setdefault(place, set()).add(record.offset)
        self.world.processed(record)

    def durable_count(self, place: TopicPartition) -> int:
        """Return how many records of a partition have durable results."""
        return len(self._durable.get(place, ()))


class CheckedTask(Task):
    """A task that checks how it is called.

    Args:
        task_id: Its id.
        process: Its process.
        rules: The rules.
        owned: Returns the partitions of the member.
        is_abandoned: Returns True if the processor no longer exists.
    """

    def __init__(
        self,
        task_id: TaskId,
        process: RecipeProcess,
        rules: TaskRules,
        owned: Callable[[], Any],
        is_abandoned: Callable[[], bool],
    ) -> None:
        running = current_process.get()
        assert running is not None
        self.id = task_id
        self.host: WorldProcess = running
        self.is_abandoned = is_abandoned
        self._rules = rules
        self._user = process
        self._call: str | None = None
        self._is_closed = False
        self._has_failed = False
        self._unflushed: list[Record] = []
        self._last: dict[TopicPartition, int] = {}
        if missing := set(task_id.partitions).difference(owned()):
            rules.break_rule("complete", f"{self} was created without {missing}")
        rules.on_created(self)

    def __repr__(self) -> str:
        return f"task {self.id} of {self.host!r}"

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        """Check that no other call runs."""
        if self._call is not None or self._is_closed:
            what = "close" if self._is_closed else self._call
            self._rules.break_rule("calls", f"{method} of {self} after or during {what}")
        self._call = method
        try:
            yield
        finally:
            self._call = None

    async def process(self, record: Record) -> None:
        with self._calling("process"):
            place = TopicPartition(record.topic, record.partition)
            if place not in self.id.partitions:
                self._rules.break_rule("calls", f"{self} got a record of {place}")
            last = self._last.get(place)
            if last is not None and record.offset != last + 1:
                what = f"{record.offset} of {place} after {last}"
                self._rules.break_rule("order", f"{self} got {what}")
            self._last[place] = record.offset
            if self._user.rng.random() < 0.3:
                await asyncio.sleep(self._user.rng.uniform(0, self._user.scenario.step_s / 4))
            self._fail_sometimes()
            self._rules.on_processed(record)
            self._unflushed.append(record)

    async def flush(self) -> None:
        with self._calling("flush"):
            await self._user.clean_up()
            self._fail_sometimes()
            for record in self._unflushed:
                self._rules.on_durable(record)
            self._unflushed.clear()

    async def close(self) -> None:
        with self._calling("close"):
            if self._unflushed and self._rules.is_stable and not self._has_failed:
                self._rules.break_rule("flush", f"{self} was closed without a flush")
            await self._user.clean_up()
            self._is_closed = True
        self._rules.on_closed(self)

    def _fail_sometimes(self) -> None:
        if self._user.fails_now():
            self._has_failed = True
            raise InjectedError
