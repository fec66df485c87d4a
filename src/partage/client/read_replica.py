"""The choice of the broker that a partition is read from: its leader or a follower (KIP-392).

A consumer states its rack in Fetch requests. Instead of records, a leader may name a *preferred
read replica*: a follower in this rack. The module does no I/O.
"""

from __future__ import annotations

from partage.client.metadata import LeaderAndEpoch


class ReadReplica:
    """The broker to read one partition from, by the rules of Kafka's Java consumer.

    The preferred replica is dropped when it expires or when the leader or its epoch changes. The
    caller drops it after a failure, and if the metadata lists it as offline or not at all.

    Args:
        lifetime_ms: The time for which a preferred replica is used (``metadata.max.age.ms``). Then
            the leader chooses again.
    """

    __slots__ = ("_expires_at_ms", "_lifetime_ms", "_named_by", "_replica_id")

    def __init__(self, lifetime_ms: int) -> None:
        self._lifetime_ms = lifetime_ms
        self._replica_id: int | None = None
        self._named_by = LeaderAndEpoch(-1, -1)
        self._expires_at_ms = 0

    def select(self, leadership: LeaderAndEpoch, now_ms: int) -> int:
        """Return the id of the broker to read from.

        Args:
            leadership: The current leader and its epoch.
            now_ms: The time, by the same clock as in `prefer`.
        """
        if self._replica_id is None:
            return leadership.leader_id
        if now_ms > self._expires_at_ms or leadership != self._named_by:
            self._replica_id = None
            return leadership.leader_id
        return self._replica_id

    def prefer(self, replica_id: int, leadership: LeaderAndEpoch, now_ms: int) -> None:
        """Use the replica that the leader prefers.

        Args:
            replica_id: The id of the broker; -1 if the leader prefers none.
            leadership: The leader that was asked, and its epoch.
            now_ms: The time.
        """
        if replica_id < 0 or replica_id == self._replica_id:
            return
        self._replica_id = replica_id
        self._named_by = leadership
        self._expires_at_ms = now_ms + self._lifetime_ms

    def clear(self) -> None:
        """Read from the leader again, until it prefers a replica."""
        self._replica_id = None
