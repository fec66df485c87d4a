"""The readers of partitions: positions, gaps, moves, duplicates, and the rules about them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.model.topic_partition import TopicPartition


class RuleBroken(msgspec.Struct, frozen=True):
    """A guarantee that did not hold."""

    rule: str
    description: str


class PartitionHistory(msgspec.Struct, kw_only=True):
    """One partition: its readers, the position up to which it was read, and its last commit."""

    created_ms: int
    readers: dict[str, int] = {}  # member -> time since when it reads
    unread_since_ms: int | None = None
    last_reader: str | None = None
    read_up_to: int = 0
    committed: int = -1


class ReadingStats(msgspec.Struct, kw_only=True):
    """Statistics of the partitions since the last `Readers.take`.

    Attributes:
        unread_partition_ms: Time without a reader, summed over all partitions.
        moved: How often another member began to read a partition than the one before.
        duplicates: Records that were read again.
        stopped: How often a member stopped reading a partition.
        changed_ms: When the last partition got or lost a reader.
    """

    unread_partition_ms: int = 0
    moved: int = 0
    duplicates: int = 0
    stopped: int = 0
    changed_ms: int = 0


class Readers:
    """The readers of all partitions.

    The rules are:

    - "one reader": no partition has two readers.
    - "commits": no member starts below the committed offset.
    - "lost commits": no commit is lower than an earlier one. Members here never go back.

    Args:
        records_per_s: Records that arrive in each partition each second. Members keep up.
    """

    def __init__(self, records_per_s: int) -> None:
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.stats = ReadingStats()
        self.misread: set[TopicPartition] = set()  # those without a reader, or with several
        self.broken: list[RuleBroken] = []
        self.double_read_ms = 0  # time with two readers, summed over all partitions
        self.deleted: set[TopicPartition] = set()
        self._deleted_read_ms = 0
        self._records_per_s = records_per_s

    def create(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        """Create partitions. They have no reader yet."""
        for partition in partitions:
            self.partitions[partition] = PartitionHistory(created_ms=at_ms, unread_since_ms=at_ms)
            self.misread.add(partition)
            self.deleted.discard(partition)

    def delete(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        """Delete partitions. No rule applies to them, but the time of their readers is counted."""
        for partition in partitions:
            history = self.partitions[partition]
            if history.unread_since_ms is not None:
                self.stats.unread_partition_ms += at_ms - history.unread_since_ms
                history.unread_since_ms = None
            history.readers = dict.fromkeys(history.readers, at_ms)
            self.misread.discard(partition)
            self.deleted.add(partition)

    def deleted_read_ms(self, at_ms: int) -> int:
        """Return how long members had deleted partitions, summed over these partitions."""
        return self._deleted_read_ms + sum(
            at_ms - since_ms
            for partition in self.deleted
            for since_ms in self.partitions[partition].readers.values()
        )

    def end_offset(self, partition: TopicPartition, at_ms: int) -> int:
        """Return the number of records in a partition."""
        created_ms = self.partitions[partition].created_ms
        return (at_ms - created_ms) * self._records_per_s // 1000

    def commit_lag_ms(self, partition: TopicPartition, at_ms: int) -> int:
        """Return the age of the first record that is not committed; 0 or less without one."""
        history = self.partitions[partition]
        committed_ms = max(0, history.committed) * 1000 // self._records_per_s
        return at_ms - history.created_ms - committed_ms

    def start(self, member: str, partition: TopicPartition, offset: int, at_ms: int) -> None:
        """A member starts to read a partition from a committed offset (-1: the beginning)."""
        history = self.partitions[partition]
        if member in history.readers:
            return
        if partition in self.deleted:
            history.readers[member] = at_ms
            return
        if history.readers:
            other = next(iter(history.readers))
            self.broken.append(
                RuleBroken("one reader", f"{member} reads {partition}, which {other} reads")
            )
        if offset < history.committed:
            self.broken.append(
                RuleBroken(
                    "commits",
                    f"{member} reads {partition} from {offset}; {history.committed} was committed",
                )
            )
        self.stats.duplicates += max(0, history.read_up_to - max(0, offset))
        if history.last_reader not in (None, member):
            self.stats.moved += 1
        if history.unread_since_ms is not None:
            self.stats.unread_partition_ms += at_ms - history.unread_since_ms
            history.unread_since_ms = None
        history.readers[member] = at_ms
        self._note_readers(partition, history)
        history.last_reader = member
        self.stats.changed_ms = at_ms

    def stop(self, member: str, partition: TopicPartition, at_ms: int) -> None:
        """A member stops reading a partition."""
        history = self.partitions[partition]
        since_ms = history.readers.pop(member, None)
        if since_ms is None:
            return
        if partition in self.deleted:
            self._deleted_read_ms += at_ms - since_ms
            return
        self._note_readers(partition, history)
        for other_since_ms in history.readers.values():
            self.double_read_ms += at_ms - max(since_ms, other_since_ms)
        history.read_up_to = max(history.read_up_to, self.end_offset(partition, at_ms))
        self.stats.stopped += 1
        self.stats.changed_ms = at_ms
        if not history.readers:
            history.unread_since_ms = at_ms

    def _note_readers(self, partition: TopicPartition, history: PartitionHistory) -> None:
        if len(history.readers) == 1:
            self.misread.discard(partition)
        else:
            self.misread.add(partition)

    def commit(self, partition: TopicPartition, offset: int) -> None:
        """A commit is durable, so the coordinator may acknowledge it."""
        history = self.partitions[partition]
        if offset < history.committed and partition not in self.deleted:
            self.broken.append(
                RuleBroken(
                    "lost commits",
                    f"{partition} was committed at {history.committed}, and then at {offset}",
                )
            )
        history.committed = offset

    @property
    def unread(self) -> list[TopicPartition]:
        """The existing partitions without a reader."""
        return [
            each
            for each, history in self.partitions.items()
            if not history.readers and each not in self.deleted
        ]

    def take(self, at_ms: int) -> ReadingStats:
        """Return the statistics, including open gaps, and start again from zero."""
        for history in self.partitions.values():
            if history.unread_since_ms is not None:
                self.stats.unread_partition_ms += at_ms - history.unread_since_ms
                history.unread_since_ms = at_ms
        taken, self.stats = self.stats, ReadingStats()
        return taken
