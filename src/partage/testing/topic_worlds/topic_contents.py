"""The contents of the topics of a world, now and before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from partage.model.topic_partition import TopicPartition


class RecordState(Enum):
    """The state of the transaction of a record; a record without one is committed."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class StoredRecord:
    """A record that was written; its value names the topic's incarnation, partition and number.

    ``key`` is None in topics that are not compacted.
    """

    key: bytes | None
    value: bytes
    state: RecordState


@dataclass
class PartitionContents:
    """One partition of one incarnation of a topic.

    Attributes:
        records: The acknowledged records, by offset.
        trimmed: Records below this offset are deleted, or may be.
        deleted: Records below this offset are deleted.
    """

    records: dict[int, StoredRecord] = field(default_factory=dict)
    trimmed: int = 0
    deleted: int = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record; a marker may follow."""
        return max(self.records, default=-1) + 1

    def lasting(self, *, committed_only: bool) -> list[int]:
        """Return the offsets that are there in any case: not deleted, and not compacted away.

        Args:
            committed_only: Leave out the records of open and aborted transactions.
        """
        last: dict[bytes, int] = {}
        for offset, record in self.records.items():
            if record.key is not None and record.state is RecordState.COMMITTED:
                last[record.key] = max(offset, last.get(record.key, 0))
        return [
            offset
            for offset, record in self.records.items()
            if offset >= self.trimmed
            and (record.key is None or offset >= last.get(record.key, 0))
            and (
                record.state is RecordState.COMMITTED or (not committed_only and record.key is None)
            )
        ]


class ValuePlace(NamedTuple):
    """The place for which a value was written: partition, and incarnation of its topic."""

    partition: TopicPartition
    incarnation: int


class TopicContents:
    """The partitions of all topics, by their incarnations."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, list[PartitionContents]] = defaultdict(list)
        #: The number of incarnations of each topic, with one that is being created.
        self.incarnations: dict[str, int] = defaultdict(int)

    def create(self, topic: str, count: int) -> None:
        """Note that a topic is created, with a number of partitions."""
        self.incarnations[topic] += 1
        for number in range(count):
            self._partitions[TopicPartition(topic, number)].append(PartitionContents())

    @property
    def record_count(self) -> int:
        """The number of records that were written."""
        return sum(len(each.records) for every in self._partitions.values() for each in every)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return list(self._partitions)

    def current(self, partition: TopicPartition) -> PartitionContents:
        """Return a partition of the current incarnation of its topic."""
        return self._partitions[partition][-1]

    def at(self, partition: TopicPartition, incarnation: int) -> PartitionContents:
        """Return a partition of an incarnation of its topic, from 0 on."""
        return self._partitions[partition][incarnation]

    def newest(self, topic: str) -> int:
        """Return the number of the newest incarnation, from 0 on."""
        return self.incarnations[topic] - 1

    def value(self, partition: TopicPartition, number: int) -> bytes:
        """Return the value of a new record of the current incarnation."""
        topic, index = partition
        return b"%s/%d/%d/%d" % (topic.encode(), self.newest(topic), index, number)


def place_of(value: bytes) -> ValuePlace:
    """Return the place for which a value was written."""
    topic, incarnation, index, _ = value.split(b"/")
    return ValuePlace(TopicPartition(topic.decode(), int(index)), int(incarnation))
