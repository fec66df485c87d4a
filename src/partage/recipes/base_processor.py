"""What both faces of a processor have in common: all that needs no waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from partage.client.metadata import TopicPartition
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

#: A stop is noticed within this time.
POLL_MS: Final = 200

#: For so long a rebalance is waited for that keeps the last commit from being made.
LAST_COMMIT_S: Final = 10.0

#: Offsets by partition, as a consumer takes them.
Offsets = dict[TopicPartition | tuple[str, int], int]

_OURS: Final = {
    "group_id": "it is a separate argument",
    "enable_auto_commit": "the processor commits processed offsets",
    "partition_assignment_strategy": "the assignor is built in",
}


class BaseProcessor:
    """See `partage.recipes.Processor`."""

    def __init__(
        self,
        make_task: MakeTask,
        *,
        joined: Iterable[str],
        topics: Iterable[str],
        commit_interval_ms: int,
    ) -> None:
        if commit_interval_ms < 0:
            raise ValueError(f"commit_interval_ms must be 0 or more, not {commit_interval_ms}")
        self._joined, self._topics = validate_topics(joined, topics)
        self._tasks = TaskSet(self._joined, make_task)
        self._commit_interval_s = commit_interval_ms / 1000
        self._commit_at_s = time.monotonic() + self._commit_interval_s
        self._is_stopping = False
        self._run_refusal: str | None = None  # why there can be no other run

    @property
    def tasks(self) -> list[TaskId]:
        """The tasks that are this member's now, in order."""
        return self._tasks.ids

    def stop(self) -> None:
        """Have `run` return when what it has in hand is done; may be called from anywhere.

        Called while nothing runs, it has the next `run` return at once.
        """
        self._is_stopping = True

    def _options(self, group_id: str, options: dict[str, Any]) -> dict[str, Any]:
        """Those of the consumer underneath. Raises TypeError for what a processor decides."""
        for name, why in _OURS.items():
            if name in options:
                raise TypeError(f"Processor does not accept {name}: {why}")
        self._wait_s = unknown_topic_wait_s(options)
        return {
            "auto_offset_reset": "earliest",
            **options,
            "group_id": group_id,
            "enable_auto_commit": False,
            "partition_assignment_strategy": [ProcessorAssignor(*self._joined)],
        }

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Around `run`: what one that is cut short has in hand, no later one would be given."""
        self._check_run()
        try:
            yield
        except Exception:  # a task's, which is marked there, or the brokers', which lost nothing
            raise
        except BaseException:  # cancelled, or Ctrl-C
            self._run_refusal = "a run was interrupted"
            raise
        finally:
            self._is_stopping = False

    def _make_tasks(self, partitions: Collection[TopicPartition]) -> None:
        """Make those that are complete now; where one fails, partitions stay paused for good."""
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
    """The offsets of what was done, of tasks that can be trusted."""
    return {
        partition: offset
        for slot in slots
        if not slot.has_failed
        for partition, offset in slot.uncommitted.items()
    }


def clear_committed(slots: Iterable[TaskState], offsets: Offsets) -> None:
    """These are committed; what was done meanwhile is not."""
    for slot in slots:
        for partition in list(slot.uncommitted):
            if slot.uncommitted[partition] == offsets.get(partition):
                del slot.uncommitted[partition]


def log_refused_commit(error: Exception) -> None:
    """Say that a commit was refused: what was done since the last one may be done again."""
    log.warning(
        "commit of processed offsets failed, a later commit may include them: error=%s", error
    )
