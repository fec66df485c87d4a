"""A group of the designs with JoinGroup: its members and its state."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.proposals.machine import ConnectionId
from partage.wire.types import Message


class DesignGroupState(StrEnum):
    """The states of a group. Only the design with a single assignor synchronizes."""

    EMPTY = "Empty"
    JOINING = "Joining"
    SYNCHRONIZING = "Synchronizing"
    STABLE = "Stable"


#: The meaning of each state, for the documentation.
STATE_DESCRIPTIONS: dict[DesignGroupState, str] = {
    DesignGroupState.EMPTY: "The group has no members.",
    DesignGroupState.JOINING: "The coordinator waits for the JoinGroup requests of all members.",
    DesignGroupState.SYNCHRONIZING: "The coordinator waits for the assignment of one member.",
    DesignGroupState.STABLE: "All members have the responses to their JoinGroup requests.",
}


class MemberEntry(msgspec.Struct, kw_only=True):
    """A member. ``request`` is its last JoinGroup request, parked if it has a ``connection``.

    ``number`` counts members in the order of their first join, ``join_order`` all parked requests
    of the group. A request that was parked in an earlier join phase keeps its place.
    ``metadata_bytes`` is the size of the metadata in the request.
    """

    id: str
    number: int
    session_timeout_ms: int
    request: Message
    metadata_bytes: int = 0
    connection: ConnectionId | None = None
    join_order: int = 0

    @property
    def is_parked(self) -> bool:
        """True if a JoinGroup request waits for its response."""
        return self.connection is not None


class MemberSessionTimer(msgspec.Struct, frozen=True):
    """The session of a member."""

    group_id: str
    member_id: str


class JoinPhaseTimer(msgspec.Struct, frozen=True):
    """The end of the join phase."""

    group_id: str


class SynchronizeTimer(msgspec.Struct, frozen=True):
    """The time in which the synchronizer must answer."""

    group_id: str


class ExpirationTimer(msgspec.Struct, frozen=True):
    """The time after which a group without members is removed."""

    group_id: str


TimerKey = MemberSessionTimer | JoinPhaseTimer | SynchronizeTimer | ExpirationTimer


class DesignGroup:
    """One group. Only the generation is durable."""

    __slots__ = (
        "generation",
        "id",
        "is_delayed",
        "join_count",
        "member_count",
        "members",
        "parked_count",
        "protocol_counts",
        "protocol_type",
        "state",
        "synchronizer",
    )

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.state = DesignGroupState.EMPTY
        self.generation = 0
        self.members: dict[str, MemberEntry] = {}
        self.protocol_type = ""
        self.parked_count = 0
        self.protocol_counts: dict[str, int] = {}  # protocol -> members that support it
        self.member_count = 0  # members that ever joined
        self.join_count = 0  # JoinGroup requests that were parked
        self.is_delayed = False  # an empty group waits for further members
        self.synchronizer: str | None = None

    @property
    def has_all_joined(self) -> bool:
        """True if every member has a parked JoinGroup request."""
        return self.parked_count == len(self.members)

    def park(self, member: MemberEntry, connection: ConnectionId) -> None:
        """Store the connection of a JoinGroup request that gets its response later."""
        if member.connection is None:
            self.parked_count += 1
        self.join_count += 1
        member.join_order = self.join_count
        member.connection = connection

    def unpark(self, member: MemberEntry) -> ConnectionId | None:
        """Return the connection of the parked request, which gets its response now."""
        connection, member.connection = member.connection, None
        if connection is not None:
            self.parked_count -= 1
        return connection
