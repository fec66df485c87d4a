"""Joins of topics, partition by partition, in a group: `Processor`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from partage.client.consumer import (
    AssignmentFailedError,
    CommitFailedError,
    Consumer,
    MaxPollExceededError,
    NotAssignedError,
    RebalanceListener,
    Records,
)
from partage.client.errors import ClientError
from partage.client.metadata import TopicPartition
from partage.recipes.base_processor import (
    LAST_COMMIT_S,
    POLL_MS,
    BaseProcessor,
    clear_committed,
    log_refused_commit,
    offsets_to_commit,
)
from partage.recipes.tasks import MakeTask, TaskBatch, TaskState, check_partition_counts
from partage.recipes.topic_lookup import partitions_of

log = logging.getLogger(__name__)


class Processor(BaseProcessor):
    """One of the workers that join topics; on asyncio, a context manager.

    Partition n of all ``joined`` topics goes to one worker, and its records to one task, made by
    ``make_task``; of each partition of the other ``topics``, spread evenly, to a task of its own::

        async with Processor(servers, "joiner", Join, joined=["clicks", "orders"]) as processor:
            await processor.run()

    What was processed is committed every ``commit_interval_ms``, before a partition is given up,
    and on `close`: whoever goes on has nothing twice, unless a worker was lost. Options as
    `partage.Consumer`; ``auto_offset_reset`` is "earliest" if nothing is said.

    Raises:
        ValueError: the topics cannot be meant.
        TypeError, ClientError: as `partage.Consumer`; options that a processor decides itself.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        make_task: MakeTask,
        *,
        joined: Iterable[str],
        topics: Iterable[str] = (),
        commit_interval_ms: int = 5_000,
        **options: Any,
    ) -> None:
        super().__init__(
            make_task, joined=joined, topics=topics, commit_interval_ms=commit_interval_ms
        )
        self._consumer = Consumer(bootstrap_servers, **self._options(group_id, options))

    @property
    def consumer(self) -> Consumer:
        """The consumer underneath, for its positions and its lag."""
        return self._consumer

    async def start(self) -> None:
        """Look whether the topics can be joined, and subscribe.

        Raises:
            CoPartitioningError: the joined topics differ in their numbers of partitions.
            UnknownTopicError: one of them does not exist.
        """
        for topic in sorted(self._topics):
            await partitions_of(self._consumer, topic, self._wait_s)
        await self._check_counts()
        self._consumer.subscribe(self._topics, _Listener(self))

    async def run(self) -> None:
        """Process until `stop`; one that was cancelled cannot be followed by another.

        Raises:
            CoPartitioningError: the joined topics do not have the same number of partitions any more.
            AssignmentFailedError: the group's leader cannot assign for another reason.
            Exception: what a task raised, or ``make_task``. Its records since the last commit come
                again.
            ClientError: as `partage.Consumer.poll`.
            RuntimeError: a task has failed before, or could not be made, or a run was cut short.
        """
        with self._running():
            while not self._is_stopping:
                await self._process(await self._poll())
                if self._is_commit_due():
                    await self._commit(self._tasks.states)

    async def close(self) -> None:
        """Commit, give the tasks up, and leave."""
        try:
            await self._commit_last()
        finally:
            try:
                await self._consumer.close()
            finally:
                await self.close_tasks(self._tasks.remove_partitions(self._tasks.complete))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._consumer.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Records.

    async def _poll(self) -> Records:
        try:
            return await self._consumer.poll(POLL_MS)
        except MaxPollExceededError as error:
            log.warning("processor rejoins its group: error=%s", error)
            return Records()
        except AssignmentFailedError:
            await self._check_counts()
            raise

    async def _check_counts(self) -> None:
        counts = {}
        for topic in self._joined:
            counts[topic] = len(await partitions_of(self._consumer, topic, self._wait_s))
        check_partition_counts(counts)

    async def _process(self, records: Records) -> None:
        """Hand records to their tasks, side by side where they wait for something."""
        work = self._tasks.split_records(records)
        if len(work) == 1:
            await _process(work[0])
        elif work:
            done = await asyncio.gather(*map(_process, work), return_exceptions=True)
            for failure in done:
                if failure is not None:
                    raise failure

    # What was done.

    async def _commit(self, slots: list[TaskState]) -> bool:
        """Flush tasks and commit what they did; whether that is committed now."""
        for slot in slots:
            if slot.uncommitted and not slot.has_failed:
                with slot.mark_failed_on_error():
                    await _call(slot.task.flush)
        offsets = offsets_to_commit(slots)
        if not offsets:
            return True
        try:
            await self._consumer.commit(offsets)
        except CommitFailedError as error:
            log_refused_commit(error)
            return False
        clear_committed(slots, offsets)
        return True

    async def _commit_last(self) -> None:
        """Commit before leaving; while a rebalance is under way that has to be waited for."""
        give_up = time.monotonic() + LAST_COMMIT_S
        while not await self._commit(self._tasks.states) and time.monotonic() < give_up:
            try:
                await self._consumer.poll(POLL_MS, max_records=0)
            except ClientError as error:
                log.warning("processor leaves without its last commit: error=%s", error)
                return

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Others get these next."""
        slots = self._tasks.remove_partitions(partitions)
        self._pause_incomplete()
        try:
            await self._commit(slots)
        finally:
            await self.close_tasks(slots)

    async def close_tasks(self, slots: list[TaskState]) -> None:
        """Close tasks, all of them, whatever one raises."""
        done = await asyncio.gather(
            *(_call(slot.task.close) for slot in slots), return_exceptions=True
        )
        for failure in done:
            if failure is not None:
                raise failure

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are here now."""
        try:
            self._make_tasks(partitions)
        finally:
            self._pause_incomplete()

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Somebody else may have these already."""
        await self.close_tasks(self._tasks.remove_partitions(partitions))

    def _pause_incomplete(self) -> None:
        """Pause what has no task yet."""
        paused, wanted = self._consumer.paused(), self._tasks.incomplete
        for partition in wanted ^ paused:
            with suppress(NotAssignedError):  # lost meanwhile: the listener will hear of it
                if partition in wanted:
                    self._consumer.pause(partition)
                else:
                    self._consumer.resume(partition)


class _Listener(RebalanceListener):
    """What the group tells a processor."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._processor.on_revoked(partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_assigned(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._processor.on_lost(partitions)


async def _process(work: TaskBatch) -> None:
    """Hand a task its records."""
    slot = work.slot
    with slot.mark_failed_on_error():
        for record in work.records:
            waited_for = slot.task.process(record)
            if waited_for is not None and inspect.isawaitable(waited_for):
                await waited_for
            slot.mark_done(record)
    work.mark_done()


async def _call(call: Callable[[], Awaitable[None] | None]) -> None:
    waited_for = call()
    if inspect.isawaitable(waited_for):
        await waited_for
