"""`partage.recipes.Processor` for code without asyncio."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from partage.client.consumer import (
    AssignmentFailedError,
    CommitFailedError,
    MaxPollExceededError,
    NotAssignedError,
    RebalanceListener,
    Records,
)
from partage.client.consumer.sync_consumer import Consumer
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
from partage.recipes.topic_lookup import partitions_of_sync

log = logging.getLogger(__name__)


class Processor(BaseProcessor):
    """The same as `partage.recipes.Processor`, which see, blocking; tasks run one after the other.

    `stop` may be called from another thread, or from a signal's handler::

        with Processor(servers, "joiner", Join, joined=["clicks", "orders"]) as processor:
            processor.run()
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

    def start(self) -> None:
        """Look whether the topics can be joined, and subscribe.

        Raises:
            CoPartitioningError: the joined topics differ in their numbers of partitions.
            UnknownTopicError: one of them does not exist.
        """
        for topic in sorted(self._topics):
            partitions_of_sync(self._consumer, topic, self._wait_s)
        self._check_counts()
        self._consumer.subscribe(self._topics, _Listener(self))

    def run(self) -> None:
        """Process until `stop`; raises as `partage.recipes.Processor.run`."""
        with self._running():
            while not self._is_stopping:
                self._process(self._poll())
                if self._is_commit_due():
                    self._commit(self._tasks.states)

    def close(self) -> None:
        """Commit, give the tasks up, and leave."""
        try:
            self._commit_last()
        finally:
            try:
                self._consumer.close()
            finally:
                self.close_tasks(self._tasks.remove_partitions(self._tasks.complete))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Records.

    def _poll(self) -> Records:
        try:
            return self._consumer.poll(POLL_MS)
        except MaxPollExceededError as error:
            log.warning("processor rejoins its group: error=%s", error)
            return Records()
        except AssignmentFailedError:
            self._check_counts()
            raise

    def _check_counts(self) -> None:
        counts = {}
        for topic in self._joined:
            counts[topic] = len(partitions_of_sync(self._consumer, topic, self._wait_s))
        check_partition_counts(counts)

    def _process(self, records: Records) -> None:
        """Hand records to their tasks; those of the others before one that fails ends it."""
        first: Exception | None = None
        for work in self._tasks.split_records(records):
            try:
                _process(work)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    # What was done.

    def _commit(self, slots: list[TaskState]) -> bool:
        """Flush tasks and commit what they did; whether that is committed now."""
        for slot in slots:
            if slot.uncommitted and not slot.has_failed:
                with slot.mark_failed_on_error():
                    _call(slot.task.flush)
        offsets = offsets_to_commit(slots)
        if not offsets:
            return True
        try:
            self._consumer.commit(offsets)
        except CommitFailedError as error:
            log_refused_commit(error)
            return False
        clear_committed(slots, offsets)
        return True

    def _commit_last(self) -> None:
        """Commit before leaving; while a rebalance is under way that has to be waited for."""
        give_up = time.monotonic() + LAST_COMMIT_S
        while not self._commit(self._tasks.states) and time.monotonic() < give_up:
            try:
                self._consumer.poll(POLL_MS, max_records=0)
            except ClientError as error:
                log.warning("processor leaves without its last commit: error=%s", error)
                return

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Others get these next."""
        slots = self._tasks.remove_partitions(partitions)
        self._pause_incomplete()
        try:
            self._commit(slots)
        finally:
            self.close_tasks(slots)

    def close_tasks(self, slots: list[TaskState]) -> None:
        """Close tasks, all of them, whatever one raises."""
        first: Exception | None = None
        for slot in slots:
            try:
                _call(slot.task.close)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are here now."""
        try:
            self._make_tasks(partitions)
        finally:
            self._pause_incomplete()

    def _pause_incomplete(self) -> None:
        """Pause what has no task yet."""
        paused, wanted = self._consumer.paused(), self._tasks.incomplete
        for partition in wanted ^ paused:
            with suppress(NotAssignedError):  # lost meanwhile: the listener will hear of it
                if partition in wanted:
                    self._consumer.pause(partition)
                else:
                    self._consumer.resume(partition)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Somebody else may have these already."""
        self.close_tasks(self._tasks.remove_partitions(partitions))


class _Listener(RebalanceListener):
    """What the group tells a processor."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_revoked(partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_assigned(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_lost(partitions)


def _process(work: TaskBatch) -> None:
    """Hand a task its records."""
    slot = work.slot
    with slot.mark_failed_on_error():
        for record in work.records:
            if (result := slot.task.process(record)) is not None:
                _check(result)
            slot.mark_done(record)
    work.mark_done()


def _call(call: Callable[[], object]) -> None:
    _check(call())


def _check(result: object) -> None:
    """A coroutine that nobody awaits would do nothing, and look as if it had."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the task has coroutine functions, which only partage.recipes.Processor can await"
        )
