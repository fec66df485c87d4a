"""The methods of both processors that need no waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from partage.client.consumer.arguments import PartitionLike
from partage.model.arguments import InvalidArgumentError, check_function, check_int
from partage.model.topic_partition import TopicPartition
from partage.recipes.config import ProcessorConfig
from partage.recipes.tasks import (
    MakeTask,
    ProcessorAssignor,
    TaskId,
    TaskSet,
    TaskState,
    validate_topics,
)
from partage.recipes.topic_lookup import unknown_topic_wait_s

log = logging.getLogger(__name__)

#: `BaseProcessor.stop` takes effect within this time.
POLL_MS: Final = 200

#: Longest wait for a rebalance that blocks the last commit.
LAST_COMMIT_S: Final = 10.0

#: Offsets by partition, in the form that consumers take.
Offsets = dict[PartitionLike, int]

_RESERVED: Final = {
    "key_deserializer": "deserialize in the task",
    "value_deserializer": "deserialize in the task",
    "enable_auto_commit": "the processor commits processed offsets",
    "auto_commit_interval_ms": "use commit_interval_ms",
    "partition_assignment_strategy": "the assignor is built in",
    "group_protocol": "the leader of its group keeps joined topics together and compares them, "
    "which needs the classic protocol",
    "group_remote_assignor": "the assignor is built in, and no broker runs it",
}


class BaseProcessor:
    """The base class of both processors; see `partage.recipes.Processor`.

    Raises:
        InvalidArgumentError: An argument is invalid, or an option is reserved.
    """

    def __init__(
        self,
        make_task: MakeTask,
        *,
        joined: Iterable[str],
        topics: Iterable[str],
        commit_interval_ms: int,
        options: ProcessorConfig,
    ) -> None:
        for name, why in _RESERVED.items():
            if name in options:
                raise InvalidArgumentError(f"Processor does not accept {name}: {why}")
        check_function("make_task", make_task, "a TaskId")
        check_int("commit_interval_ms", commit_interval_ms, unit="ms")
        self._joined, self._topics = validate_topics(joined, topics)
        self._tasks = TaskSet(self._joined, make_task)
        self._assignor = ProcessorAssignor(*self._joined)
        self._options: ProcessorConfig = {"auto_offset_reset": "earliest", **options}
        self._wait_s = unknown_topic_wait_s(options)
        self._commit_interval_s = commit_interval_ms / 1000
        self._commit_at_s = time.monotonic() + self._commit_interval_s
        self._is_stopping = False
        self._run_refusal: str | None = None  # the reason why no other run is possible

    @property
    def tasks(self) -> list[TaskId]:
        """The ids of this member's tasks, sorted."""
        return self._tasks.ids

    def stop(self) -> None:
        """Make `run` return after it has processed the records it holds; any thread may call it.

        If `run` is not active, the next `run` returns at once.
        """
        self._is_stopping = True

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Guard a run: records held by an interrupted run would not be delivered to a later one."""
        self._check_run()
        try:
            yield
        # A failed task is marked as failed, and an error of the brokers loses no records.
        except Exception:
            raise
        except BaseException:  # cancelled, or Ctrl-C
            self._run_refusal = "a run was interrupted"
            raise
        finally:
            self._is_stopping = False

    def _make_tasks(self, partitions: Collection[TopicPartition]) -> None:
        """Create the tasks that are complete now; after a failure their partitions stay paused."""
        try:
            self._tasks.add_partitions(partitions)
        except Exception as error:
            self._run_refusal = f"a task could not be created ({error!r})"
            raise

    def _check_run(self) -> None:
        failed = [str(slot.id) for slot in self._tasks.states if slot.has_failed]
        why = f"task {failed[0]} has failed" if failed else self._run_refusal
        if why is not None:
            raise RuntimeError(f"{why}: close this processor and create a new one")

    def _is_commit_due(self) -> bool:
        if time.monotonic() < self._commit_at_s:
            return False
        self._commit_at_s = time.monotonic() + self._commit_interval_s
        return True


def offsets_to_commit(slots: Iterable[TaskState]) -> Offsets:
    """Return the offsets of processed records, except those of failed tasks."""
    return {
        partition: offset
        for slot in slots
        if not slot.has_failed
        for partition, offset in slot.uncommitted.items()
    }


def clear_committed(slots: Iterable[TaskState], offsets: Offsets) -> None:
    """Clear offsets that were committed and did not advance since."""
    for slot in slots:
        for partition in list(slot.uncommitted):
            if slot.uncommitted[partition] == offsets.get(partition):
                del slot.uncommitted[partition]


def log_refused_commit(error: Exception) -> None:
    """Log a refused commit: records since the last commit may be processed again."""
    log.warning(
        "commit of processed offsets failed, a later commit may include them: error=%s", error
    )
