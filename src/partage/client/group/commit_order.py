"""The order of one consumer's commits: it prevents that an earlier commit overwrites a later one.

For each partition it keeps the undecided commits in the order of their issue. Only the newest may
be sent, and only if no other commit of that partition is in flight: after a reconnect, the order of
two requests is undefined. When a commit is stored, earlier commits of the partition are done too,
because a later position is stored. When a commit fails permanently, the one before it becomes the
newest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from partage.model.topic_partition import TopicPartition


class PendingCommit:
    """One commit; ``undecided`` holds its partitions that are neither stored nor failed."""

    def __init__(
        self, serial: int, partitions: Iterable[TopicPartition], look: Callable[[], None]
    ) -> None:
        self.serial = serial
        self.undecided = set(partitions)
        self.in_flight: set[TopicPartition] = set()  # partitions in flight
        #: Called when this commit may be sendable, or when all its partitions are decided.
        self.wake = look


class CommitOrder:
    """The undecided commits of one consumer."""

    def __init__(self) -> None:
        self._serials = itertools.count()
        #: Undecided commits by partition and serial, oldest first.
        self._waiting: dict[TopicPartition, dict[int, PendingCommit]] = {}
        self._sent: set[TopicPartition] = set()

    def issue(
        self, partitions: Iterable[TopicPartition], look: Callable[[], None]
    ) -> PendingCommit:
        """Add a commit after all others; `close` must follow."""
        issued = PendingCommit(next(self._serials), partitions, look)
        for partition in issued.undecided:
            self._waiting.setdefault(partition, {})[issued.serial] = issued
        return issued

    def sendable(self, commit: PendingCommit) -> set[TopicPartition]:
        """Return the partitions to send now; the others wait for later commits or for answers."""
        return {p for p in commit.undecided if p not in self._sent and self._newest(p) is commit}

    def mark_sent(self, commit: PendingCommit, partitions: Iterable[TopicPartition]) -> None:
        """Mark sendable partitions as in flight; `mark_answered` must follow."""
        commit.in_flight = set(partitions)
        self._sent |= commit.in_flight

    def mark_answered(self, commit: PendingCommit, stored: Iterable[TopicPartition]) -> None:
        """Mark the partitions in flight as answered; ``stored`` are those that are stored."""
        for partition in stored:
            self._decide(partition, commit.serial)
        self._clear_in_flight(commit)

    def mark_failed(self, commit: PendingCommit, partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions as failed permanently; earlier commits of them may then be sent."""
        for partition in partitions:
            self._drop(commit, partition)

    def close(self, commit: PendingCommit) -> None:
        """Mark all remaining partitions as failed."""
        self._clear_in_flight(commit)
        self.mark_failed(commit, tuple(commit.undecided))

    def _newest(self, partition: TopicPartition) -> PendingCommit | None:
        waiting = self._waiting.get(partition)
        return waiting[next(reversed(waiting))] if waiting else None

    def _decide(self, partition: TopicPartition, last: int) -> None:
        """Mark all commits of a partition up to a serial as done."""
        waiting = self._waiting.get(partition, {})
        for serial in list(itertools.takewhile(lambda serial: serial <= last, waiting)):
            self._drop(waiting[serial], partition)

    def _drop(self, commit: PendingCommit, partition: TopicPartition) -> None:
        if partition not in commit.undecided:
            return
        commit.undecided.discard(partition)
        waiting = self._waiting[partition]
        del waiting[commit.serial]
        if not waiting:
            del self._waiting[partition]
        if not commit.undecided:
            commit.wake()
        self._wake_newest(partition)

    def _clear_in_flight(self, commit: PendingCommit) -> None:
        back, commit.in_flight = commit.in_flight, set()
        self._sent -= back
        for partition in back:
            self._wake_newest(partition)

    def _wake_newest(self, partition: TopicPartition) -> None:
        newest = self._newest(partition)
        if newest is not None and partition not in self._sent:
            newest.wake()
