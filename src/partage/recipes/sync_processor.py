"""A blocking processor that joins topics partition by partition, in a group."""

# Generated from processor.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack

from partage.client.addresses import BootstrapServers
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
from partage.model.arguments import check_text
from partage.model.topic_partition import TopicPartition
from partage.recipes.base_processor import (
    LAST_COMMIT_S,
    POLL_MS,
    BaseProcessor,
    clear_committed,
    log_refused_commit,
    offsets_to_commit,
)
from partage.recipes.config import ProcessorConfig
from partage.recipes.sync_support import call_task, run_each
from partage.recipes.tasks import MakeTask, TaskBatch, TaskState, check_partition_counts
from partage.recipes.topic_lookup import partitions_of_sync

log = logging.getLogger(__name__)


class Processor(BaseProcessor):
    """A worker that joins topics; a context manager for code without asyncio.

    Partition n of all ``joined`` topics is assigned to one worker, and one task processes its
    records. Each partition of the other ``topics`` has a separate task; these tasks are spread
    evenly::

        with Processor(servers, "joiner", Join, joined=["clicks", "orders"]) as processor:
            processor.run()

    Offsets of processed records are committed every ``commit_interval_ms``, before partitions are
    given up, and on `close`. So no record is processed twice unless a worker is lost.

    Args:
        make_task: Creates the task for a `TaskId`.
        joined: Topics with equally many partitions, at least two.
        topics: Other topics.
        commit_interval_ms: Interval of commits.
        options: Options of the consumer; see `ProcessorConfig`.

    Raises:
        InvalidArgumentError: An argument is invalid, or an option is reserved.
        ClientError: As `partage.sync.Consumer`.
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        make_task: MakeTask,
        *,
        joined: Iterable[str],
        topics: Iterable[str] = (),
        commit_interval_ms: int = 5_000,
        **options: Unpack[ProcessorConfig],
    ) -> None:
        super().__init__(
            make_task,
            joined=joined,
            topics=topics,
            commit_interval_ms=commit_interval_ms,
            options=options,
        )
        check_text("group_id", group_id)
        self._consumer = Consumer(
            bootstrap_servers,
            **self._options,
            group_id=group_id,
            enable_auto_commit=False,
            partition_assignment_strategy=[self._assignor],
        )
        self._consumer._name_in_warning = "Processor"

    @property
    def consumer(self) -> Consumer:
        """The underlying consumer, for its positions and its lag."""
        return self._consumer

    def start(self) -> None:
        """Check that the topics can be joined, and subscribe.

        Raises:
            CoPartitioningError: The joined topics differ in their number of partitions.
            UnknownTopicError: A topic does not exist.
        """
        for topic in sorted(self._topics):
            partitions_of_sync(self._consumer, topic, self._wait_s)
        self._check_counts()
        self._consumer.subscribe(self._topics, _Listener(self))

    def run(self) -> None:
        """Process records until `stop`. After an interrupted run, no other run is possible.

        Raises:
            CoPartitioningError: The joined topics no longer have the same number of partitions.
            AssignmentFailedError: The group's leader could not assign for another reason.
            Exception: An exception of a task or of ``make_task``. Records since the last commit are
                processed again by a later processor.
            ClientError: As `partage.sync.Consumer.poll`.
            RuntimeError: A task has failed or could not be created, or a run was interrupted.
        """
        with self._running():
            while not self._is_stopping:
                self._process(self._poll())
                if self._is_commit_due():
                    self._commit(self._tasks.states)

    def close(self) -> None:
        """Commit, close the tasks and leave the group."""
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
        """Pass records to their tasks."""
        run_each(_process, self._tasks.split_records(records))

    # Commits and rebalances.

    def _commit(self, slots: list[TaskState]) -> bool:
        """Flush tasks and commit their offsets; return True if nothing is left to commit."""
        for slot in slots:
            if slot.uncommitted and not slot.has_failed:
                with slot.mark_failed_on_error():
                    call_task(slot.task.flush)
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
        """Commit before the leave; a rebalance in progress must end first."""
        give_up = time.monotonic() + LAST_COMMIT_S
        while not self._commit(self._tasks.states) and time.monotonic() < give_up:
            try:
                self._consumer.poll(POLL_MS, max_records=0)
            except ClientError as error:
                log.warning("processor leaves without its last commit: error=%s", error)
                return

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit and close the tasks of revoked partitions."""
        slots = self._tasks.remove_partitions(partitions)
        self._pause_incomplete()
        try:
            self._commit(slots)
        finally:
            self.close_tasks(slots)

    def close_tasks(self, slots: list[TaskState]) -> None:
        """Close all tasks, even if one raises."""
        run_each(_close, slots)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Create the tasks of new partitions."""
        try:
            self._make_tasks(partitions)
        finally:
            self._pause_incomplete()

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Close the tasks of lost partitions without a commit."""
        self.close_tasks(self._tasks.remove_partitions(partitions))

    def _pause_incomplete(self) -> None:
        """Pause the partitions without a task, resume the others."""
        paused, wanted = self._consumer.paused(), self._tasks.incomplete
        for partition in wanted ^ paused:
            with suppress(NotAssignedError):  # lost in the meantime; the listener will be called
                if partition in wanted:
                    self._consumer.pause(partition)
                else:
                    self._consumer.resume(partition)


class _Listener(RebalanceListener):
    """Passes rebalance events to a processor."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_revoked(partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_assigned(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._processor.on_lost(partitions)


def _process(work: TaskBatch) -> None:
    """Pass a task its records."""
    slot = work.slot
    with slot.mark_failed_on_error():
        for record in work.records:
            call_task(slot.task.process, record)
            slot.mark_done(record)
    work.mark_done()


def _close(slot: TaskState) -> None:
    call_task(slot.task.close)
