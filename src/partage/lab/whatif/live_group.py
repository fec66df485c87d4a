"""A live group as somebody found it, in plain values: what a rehearsal begins with."""

from __future__ import annotations

import msgspec

Partition = tuple[str, int]


class LiveMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as it was found: what it subscribes to, and what it is assigned.

    ``member_id`` is the one that the coordinator gave it; assignors go by its order.
    """

    member_id: str
    client_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    assigned: tuple[Partition, ...] = ()


class LivePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a topic that somebody subscribes to.

    ``lag`` is in records, ``rate`` in records that are written to it a second.
    """

    topic: str
    index: int
    lag: int = 0
    rate: float = 0.0


class LiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it was found.

    ``generation`` and ``leader``, a member id, are None where they could not be learnt. ``speed``
    is how many records a second a member can read; the timeouts are its members'. ``partitions``
    are all of the topics that are subscribed to and exist, from 0 on, owned or not.
    """

    name: str
    assignor: str
    members: tuple[LiveMember, ...]
    partitions: tuple[LivePartition, ...]
    speed: float
    generation: int | None = None
    leader: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000

    @property
    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        found: dict[str, int] = {}
        for partition in self.partitions:
            found[partition.topic] = max(found.get(partition.topic, 0), partition.index + 1)
        return found

    @property
    def owners(self) -> dict[Partition, str]:
        """Who owns what, by member id; without what nobody owns."""
        return {place: member.member_id for member in self.members for place in member.assigned}
