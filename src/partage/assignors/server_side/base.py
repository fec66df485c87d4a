"""The interface of an assignor in the broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

#: The partitions of each member by topic id. They are sorted, and no topic is without partitions.
TargetAssignment: TypeAlias = dict[str, Mapping[bytes, tuple[int, ...]]]


class SubscribedMember(Protocol):
    """A member of the group. ``target`` is its part of the previous target assignment."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def rack_id(self) -> str | None: ...
    @property
    def subscribed_topic_ids(self) -> frozenset[bytes]: ...
    @property
    def target(self) -> Mapping[bytes, tuple[int, ...]]: ...


class SubscribedTopic(Protocol):
    """A topic. ``racks`` are the racks of the replicas of each partition; empty if unknown."""

    @property
    def name(self) -> str: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def racks(self) -> tuple[frozenset[str], ...]: ...


class ServerSideAssignor(ABC):
    """The base class of the assignors in the broker: pure functions without I/O."""

    #: The name by which members select the assignor.
    name: str

    @abstractmethod
    def assign(
        self,
        members: Mapping[str, SubscribedMember],
        topics: Mapping[bytes, SubscribedTopic],
        *,
        is_homogeneous: bool,
    ) -> TargetAssignment:
        """Compute the target assignment.

        Args:
            members: All members of the group by id.
            topics: All topics to which any member subscribes, by id.
            is_homogeneous: True if all members subscribe to the same topics.

        Returns:
            The partitions of each member. A mapping of ``members`` may be part of it.
        """


def sort_key(member: SubscribedMember) -> tuple[bool, bytes]:
    """Return the key of Kafka's order: static members by instance id, then the others by member id.

    Java compares strings by their UTF-16 units.
    """
    instance_id = member.instance_id
    text = member.member_id if instance_id is None else instance_id
    return instance_id is None, text.encode("utf-16-be", "surrogatepass")


def in_order(members: Mapping[str, SubscribedMember]) -> Sequence[SubscribedMember]:
    """Return the members in Kafka's order."""
    return sorted(members.values(), key=sort_key)
