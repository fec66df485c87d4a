"""A snapshot of a live group, with which a simulation starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from partage.assignors import Topic
from partage.model.topic_partition import TopicPartition


class LiveMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a live group: its subscription and its assignment.

    ``member_id`` comes from the coordinator; assignors use its order. ``rack`` is its
    ``client.rack``, None if it has none.
    """

    member_id: str
    client_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


class LivePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a subscribed topic.

    ``lag`` is in records, ``rate`` in records written per second. ``replicas`` has the host and the
    rack of the broker of each replica; it is empty if they are unknown.
    """

    topic: str
    index: int
    lag: int = 0
    rate: float = 0.0
    replicas: tuple[tuple[str, str | None], ...] = ()


class LiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a live group.

    ``generation`` and ``leader`` (a member id) are None if unknown. ``speed`` is the number of
    records per second that a member can read. The timeouts apply to all members. ``partitions`` has
    all partitions of the subscribed topics that exist, owned or not.
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
        """The number of partitions of each topic."""
        found: dict[str, int] = {}
        for partition in self.partitions:
            found[partition.topic] = max(found.get(partition.topic, 0), partition.index + 1)
        return found

    def known_topics(
        self,
        topics: Mapping[str, Topic],
        rack_of_broker: Callable[[str, str | None], str | None],
    ) -> dict[str, Topic]:
        """Return topics with the racks of their replicas and the live lags.

        Args:
            topics: Topics by name.
            rack_of_broker: `Assignor.rack_of_broker`.
        """
        found: dict[str, list[LivePartition]] = {}
        for partition in sorted(self.partitions, key=lambda each: (each.topic, each.index)):
            found.setdefault(partition.topic, []).append(partition)
        return {
            name: topic
            if name not in found
            else Topic(
                name=name,
                partition_count=topic.partition_count,
                lags=tuple(each.lag for each in found[name]),
                racks=tuple(
                    frozenset(filter(None, (rack_of_broker(*broker) for broker in each.replicas)))
                    for each in found[name]
                )
                if any(each.replicas for each in found[name])
                else (),
            )
            for name, topic in topics.items()
        }

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The member id of each owned partition's owner."""
        return {place: member.member_id for member in self.members for place in member.assigned}
