"""The members and topics of a group as its leader sees them, and the assignment of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

#: Partition numbers by member id and topic.
Assignment: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]

#: The generation of a member that does not send one with its owned partitions.
NO_GENERATION = -1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the group, as the leader sees it.

    ``owned`` and ``generation`` come from its subscription: the partitions it owns, and the
    generation in which it got them (-1 if it sends none). ``user_data`` is the result of its
    `Assignor.user_data`, and ``version`` is the version of the assignor that wrote it.
    """

    member_id: str
    topics: tuple[str, ...] = ()
    instance_id: str | None = None
    owned: Mapping[str, Sequence[int]] = {}
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes = b""
    version: int = 0

    @property
    def sort_key(self) -> tuple[bool, str]:
        """Key to sort members by: static members by instance id, then the others by member id (as
        Kafka).

        A static member keeps its position when it returns with another member id (KIP-345).
        """
        if self.instance_id is None:
            return True, self.member_id
        return False, self.instance_id


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as in the leader's metadata.

    ``racks`` has the racks of the replicas of each partition, ``lags`` the number of records that
    the group has not read yet. Both may be empty if they are unknown or not needed.
    """

    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    lags: tuple[int, ...] = ()
