"""The order of one consumer's commits: what may be sent of which, so that none undoes a later one.

For each partition there are the commits that are not decided, in the order in which they were
issued. The newest is the one to be sent, if none of that partition is on its way: two at a time
would be a matter of luck once the connection changes between them. When one is stored, those
issued before it are done with as well, since a later position is stored. When one fails for good,
the one before it is the newest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from partage.client.metadata import TopicPartition


class PendingCommit:
    """One commit. ``left`` is what of its partitions is not decided."""

    def __init__(
        self, serial: int, partitions: Iterable[TopicPartition], look: Callable[[], None]
    ) -> None:
        self.serial = serial
        self.undecided = set(partitions)
        self.in_flight: set[TopicPartition] = set()  # what of it is on its way
        #: Called when it may be this one's turn, or nothing is left.
        self.wake = look


class CommitOrder:
    """The commits that are under way, as of the last call."""

    def __init__(self) -> None:
        self._serials = itertools.count()
        #: By partition those that have it left, by their serials: the oldest first.
        self._waiting: dict[TopicPartition, dict[int, PendingCommit]] = {}
        self._sent: set[TopicPartition] = set()

    def issue(
        self, partitions: Iterable[TopicPartition], look: Callable[[], None]
    ) -> PendingCommit:
        """One more, after all others; `ended` must be called for it in the end."""
        issued = PendingCommit(next(self._serials), partitions, look)
        for partition in issued.undecided:
            self._waiting.setdefault(partition, {})[issued.serial] = issued
        return issued

    def sendable(self, commit: PendingCommit) -> set[TopicPartition]:
        """What of it is to be sent now; the rest waits for later commits, or for answers."""
        return {p for p in commit.undecided if p not in self._sent and self._newest(p) is commit}

    def mark_sent(self, commit: PendingCommit, partitions: Iterable[TopicPartition]) -> None:
        """These, which were due, are on their way; `returned` must follow."""
        commit.in_flight = set(partitions)
        self._sent |= commit.in_flight

    def mark_answered(self, commit: PendingCommit, stored: Iterable[TopicPartition]) -> None:
        """What was sent is on its way no more; of that these are stored."""
        for partition in stored:
            self._decide(partition, commit.serial)
        self._clear_in_flight(commit)

    def mark_failed(self, commit: PendingCommit, partitions: Iterable[TopicPartition]) -> None:
        """These will not be sent again; commits before it may be."""
        for partition in partitions:
            self._drop(commit, partition)

    def close(self, commit: PendingCommit) -> None:
        """Nothing of it will be sent again."""
        self._clear_in_flight(commit)
        self.mark_failed(commit, tuple(commit.undecided))

    def _newest(self, partition: TopicPartition) -> PendingCommit | None:
        waiting = self._waiting.get(partition)
        return waiting[next(reversed(waiting))] if waiting else None

    def _decide(self, partition: TopicPartition, last: int) -> None:
        """All up to this serial are done with."""
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
