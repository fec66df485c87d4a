"""The tasks of a processor: created from the assigned partitions, with their processed offsets.

No function here does I/O or waits. `BaseProcessor` and its subclasses use it.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import msgspec

from partage.assignors import Assignment, CoPartitioned, CoPartitioningError, Member
from partage.assignors import Topic as Described
from partage.client.consumer import Record, Records
from partage.model.arguments import InvalidArgumentError, check_texts
from partage.model.topic_partition import TopicPartition


class TaskId(NamedTuple):
    """Partition number ``partition`` of all ``topics``, written as ``clicks+orders-3``."""

    topics: tuple[str, ...]
    partition: int

    def __str__(self) -> str:
        return f"{'+'.join(self.topics)}-{self.partition}"

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions whose records the task processes."""
        return [TopicPartition(topic, self.partition) for topic in self.topics]


class Task(ABC):
    """The processing of one partition number; derive from it.

    A task is created when the member gets its partitions and closed when it gives them up. Under
    `partage.recipes.Processor` each method may be a coroutine function.
    """

    @abstractmethod
    def process(self, record: Record) -> Awaitable[None] | None:
        """Process a record. An exception ends `Processor.run`; the record comes again later."""

    def flush(self) -> Awaitable[None] | None:  # noqa: B027
        """Make all processed records durable, because their offsets will be committed next."""

    def close(self) -> Awaitable[None] | None:  # noqa: B027
        """Release resources, after a `flush` unless the partitions are lost or the task failed."""


MakeTask = Callable[[TaskId], Task]


class TaskState:
    """A task with its uncommitted offsets; after a failure nothing of it is committed."""

    def __init__(self, task_id: TaskId, task: Task) -> None:
        self.id = task_id
        self.task = task
        self.uncommitted: dict[TopicPartition, int] = {}  # offsets to commit, by partition
        self.has_failed = False

    @contextmanager
    def mark_failed_on_error(self) -> Iterator[None]:
        """Mark the task as failed if the body raises."""
        try:
            yield
        except Exception:  # user code; the caller handles the exception
            self.has_failed = True
            raise

    def mark_done(self, record: Record) -> None:
        """Note a processed record."""
        self.uncommitted[TopicPartition(record.topic, record.partition)] = record.offset + 1


class TaskBatch(NamedTuple):
    """Records for one task, in processing order.

    ``ends`` are the positions after these records, which may be beyond the last record.
    """

    slot: TaskState
    records: Iterator[Record]
    ends: dict[TopicPartition, int]

    def mark_done(self) -> None:
        """Note that all records are processed."""
        self.slot.uncommitted |= self.ends


class TaskSet:
    """The tasks of one member.

    A task is created when all its partitions are assigned. Until then its partitions are
    ``incomplete`` and must be paused.
    """

    def __init__(self, joined: Sequence[str], make: MakeTask) -> None:
        self._joined = tuple(joined)
        self._make = make
        self._owned: set[TopicPartition] = set()
        self._slots: dict[TaskId, TaskState] = {}

    @property
    def ids(self) -> list[TaskId]:
        """The ids of the existing tasks, sorted."""
        return sorted(self._slots)

    @property
    def states(self) -> list[TaskState]:
        """The states of the existing tasks, sorted by id."""
        return [self._slots[task_id] for task_id in self.ids]

    @property
    def incomplete(self) -> set[TopicPartition]:
        """Assigned partitions without a task."""
        return {partition for partition in self._owned if self.id_of(partition) not in self._slots}

    @property
    def complete(self) -> set[TopicPartition]:
        """Assigned partitions with a task."""
        return self._owned - self.incomplete

    def id_of(self, partition: TopicPartition) -> TaskId:
        """Return the id of the task that processes a partition."""
        topics = self._joined if partition.topic in self._joined else (partition.topic,)
        return TaskId(topics, partition.partition)

    def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add assigned partitions and create complete tasks; raise what the task factory raises."""
        self._owned |= set(partitions)
        for task_id in sorted({self.id_of(partition) for partition in partitions}):
            if task_id not in self._slots and self._owned.issuperset(task_id.partitions):
                try:
                    self._slots[task_id] = TaskState(task_id, self._make(task_id))
                except Exception as error:
                    error.add_note(f"while creating task {task_id}")
                    raise

    def remove_partitions(self, partitions: Collection[TopicPartition]) -> list[TaskState]:
        """Remove partitions; return the states of the tasks that end with them."""
        self._owned -= set(partitions)
        ended = sorted({self.id_of(partition) for partition in partitions})
        return [self._slots.pop(task_id) for task_id in ended if task_id in self._slots]

    def split_records(self, records: Records) -> list[TaskBatch]:
        """Split polled records by task; merge records of several topics by timestamp.

        Within a partition, records keep the order of their offsets.
        """
        found: dict[TaskId, list[Sequence[Record]]] = {}
        ends: dict[TaskId, dict[TopicPartition, int]] = {}
        for batch in records.batches:
            task_id = self.id_of(batch.topic_partition)
            found.setdefault(task_id, []).append(batch.records())
            ends.setdefault(task_id, {})[batch.topic_partition] = batch.next_offset
        return [
            TaskBatch(self._slots[task_id], _by_time(found[task_id]), ends[task_id])
            for task_id in sorted(found)
        ]


def _by_time(parts: Sequence[Sequence[Record]]) -> Iterator[Record]:
    if len(parts) == 1:
        return iter(parts[0])
    return heapq.merge(*parts, key=lambda record: record.timestamp)


class ProcessorAssignor(CoPartitioned):
    """The assignor of processors: joined topics are co-partitioned, other partitions spread singly.

    All members must join the same topics.
    """

    name: ClassVar[str] = "processor"

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return msgspec.json.encode(sorted(self.topics))

    def assign(self, members: Sequence[Member], topics: Mapping[str, Described]) -> Assignment:
        mine = sorted(self.topics)
        for member in members:
            said = _joined_by(member)
            if said != mine:
                raise CoPartitioningError(
                    f"member {member.member_id} joins {', '.join(said)}, other members join "
                    f"{', '.join(mine)}: use the same joined topics in all processors of a group, "
                    "or another group_id"
                )
        return super().assign(members, topics)


def _joined_by(member: Member) -> list[str]:
    try:
        return msgspec.json.decode(member.user_data, type=list[str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return []


def validate_topics(
    joined: Iterable[str], topics: Iterable[str]
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the joined topics and all subscribed topics.

    Raises:
        InvalidArgumentError: The topics are invalid.
    """
    named = check_texts("joined", joined, "clicks", may_be_empty=True)
    together = tuple(dict.fromkeys(named))
    others = frozenset(check_texts("topics", topics, "clicks", may_be_empty=True))
    if len(together) < 2:
        raise InvalidArgumentError(
            f"a processor must join at least two topics, not {len(together)}"
        )
    if twice := others.intersection(together):
        raise InvalidArgumentError(
            f"topics named in both joined and topics: {', '.join(sorted(twice))}"
        )
    return together, others.union(together)


def check_partition_counts(counts: Mapping[str, int]) -> None:
    """Check that topics can be joined partition by partition.

    Raises:
        CoPartitioningError: They differ in their number of partitions.
    """
    if len(set(counts.values())) > 1:
        counted = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise CoPartitioningError(
            f"joined topics differ in their partition counts: {counted}. Equal keys have the same "
            "partition number only in topics with equally many partitions: create one of the "
            "topics again, or copy it into a topic with as many partitions as the other"
        )
