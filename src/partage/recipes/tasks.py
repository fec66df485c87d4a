"""Tasks of a processor: which there are, by what is owned, and what each has done.

Pure: nothing here waits, reads or commits. The two faces of `Processor` are around it.
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
from partage.client.metadata import TopicPartition


class TaskId(NamedTuple):
    """Partition number ``partition`` of all ``topics``, written ``clicks+orders-3``."""

    topics: tuple[str, ...]
    partition: int

    def __str__(self) -> str:
        return f"{'+'.join(self.topics)}-{self.partition}"

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions whose records the task is given."""
        return [TopicPartition(topic, self.partition) for topic in self.topics]


class Task(ABC):
    """What is done with the records of one partition number; derive your own.

    Made when the member gets the partitions, closed when it gives them up. Under
    `partage.recipes.Processor` each method may be a coroutine function.
    """

    @abstractmethod
    def process(self, record: Record) -> Awaitable[None] | None:
        """Handle a record. What is raised ends `Processor.run`, and the record comes again."""

    def flush(self) -> Awaitable[None] | None:  # noqa: B027
        """Make durable what was done so far: its offsets are about to be committed."""

    def close(self) -> Awaitable[None] | None:  # noqa: B027
        """Let go; after a `flush`, unless the partitions are lost or the task has failed."""


MakeTask = Callable[[TaskId], Task]


class TaskState:
    """A task, how far it has come, and whether it may be trusted."""

    def __init__(self, task_id: TaskId, task: Task) -> None:
        self.id = task_id
        self.task = task
        self.uncommitted: dict[TopicPartition, int] = {}  # offsets to commit, by partition
        self.has_failed = False

    @contextmanager
    def mark_failed_on_error(self) -> Iterator[None]:
        """What is raised within is the task's: nothing of it is committed any more."""
        try:
            yield
        except Exception:  # the user's; whoever runs the task raises it further
            self.has_failed = True
            raise

    def mark_done(self, record: Record) -> None:
        """A record is handled."""
        self.uncommitted[TopicPartition(record.topic, record.partition)] = record.offset + 1


class TaskBatch(NamedTuple):
    """Records for one task, in the order in which it is to have them.

    ``ends`` are the positions after them, which may be beyond the last record.
    """

    slot: TaskState
    records: Iterator[Record]
    ends: dict[TopicPartition, int]

    def mark_done(self) -> None:
        """All of it is handled."""
        self.slot.uncommitted |= self.ends


class TaskSet:
    """The tasks of one member.

    A task begins when all its partitions are here. Until then those that are wait: they are
    ``incomplete``, and to be paused.
    """

    def __init__(self, joined: Sequence[str], make: MakeTask) -> None:
        self._joined = tuple(joined)
        self._make = make
        self._owned: set[TopicPartition] = set()
        self._slots: dict[TaskId, TaskState] = {}

    @property
    def ids(self) -> list[TaskId]:
        """The tasks there are, in order."""
        return sorted(self._slots)

    @property
    def states(self) -> list[TaskState]:
        """The same with what they are."""
        return [self._slots[task_id] for task_id in self.ids]

    @property
    def incomplete(self) -> set[TopicPartition]:
        """What is owned and has no task yet."""
        return {partition for partition in self._owned if self.id_of(partition) not in self._slots}

    @property
    def complete(self) -> set[TopicPartition]:
        """What is owned and has one."""
        return self._owned - self.incomplete

    def id_of(self, partition: TopicPartition) -> TaskId:
        """Whose records those of a partition are."""
        topics = self._joined if partition.topic in self._joined else (partition.topic,)
        return TaskId(topics, partition.partition)

    def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """These are here now; raises what making a task raises."""
        self._owned |= set(partitions)
        for task_id in sorted({self.id_of(partition) for partition in partitions}):
            if task_id not in self._slots and self._owned.issuperset(task_id.partitions):
                try:
                    self._slots[task_id] = TaskState(task_id, self._make(task_id))
                except Exception as error:
                    error.add_note(f"while creating task {task_id}")
                    raise

    def remove_partitions(self, partitions: Collection[TopicPartition]) -> list[TaskState]:
        """These go, or are gone; the tasks that end with them."""
        self._owned -= set(partitions)
        ended = sorted({self.id_of(partition) for partition in partitions})
        return [self._slots.pop(task_id) for task_id in ended if task_id in self._slots]

    def split_records(self, records: Records) -> list[TaskBatch]:
        """What was polled, task by task; of several topics by time, as far as it has come.

        Within a partition the order is that of its offsets, whatever the times are.
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
    """Who has which tasks: the joined topics co-partitioned, the others dealt one by one.

    Members that join other topics have no place in the group.
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
    """What a processor joins, and all it subscribes to.

    Raises:
        ValueError: these topics cannot be meant.
    """
    if isinstance(joined, str) or isinstance(topics, str):
        raise ValueError("joined and topics must be lists of topics, not single strings")
    together, others = tuple(dict.fromkeys(joined)), frozenset(topics)
    if len(together) < 2:
        raise ValueError(f"a processor must join at least two topics, not {len(together)}")
    if twice := others.intersection(together):
        raise ValueError(f"topics named in both joined and topics: {', '.join(sorted(twice))}")
    return together, others.union(together)


def check_partition_counts(counts: Mapping[str, int]) -> None:
    """Whether topics can be joined partition by partition.

    Raises:
        CoPartitioningError: they differ in their numbers of partitions.
    """
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise CoPartitioningError(
            f"joined topics differ in their partition counts: {told}. Equal keys have the same "
            "partition number only in topics with equally many partitions: create one of the "
            "topics again, or copy it into a topic with as many partitions as the other"
        )
