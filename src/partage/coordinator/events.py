"""What can happen to a shard.

A request carries everything that a decision needs: the time, a fresh member id, a ticket for its
reply, and the client's capabilities in place of API versions. The bridge makes them from wire
messages.
"""

from __future__ import annotations

from typing import NewType

import msgspec

from partage.coordinator.timers import TimerKey

#: A reply owed. Opaque to the core, which answers each exactly once.
Ticket = NewType("Ticket", object)


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something that happened at ``at_ms``, on a clock of ms since the epoch that only goes on."""

    at_ms: int


class TimerFired(Event, frozen=True, gc=False, kw_only=True):
    """The deadline of a timer has come."""

    key: TimerKey


class TopicsDeleted(Event, frozen=True, gc=False, kw_only=True):
    """Topics are gone, and with them what groups had committed for them."""

    topics: frozenset[str]


class Request(Event, frozen=True, gc=False, kw_only=True):
    """A request to one group."""

    reply_to: Ticket
    group_id: str


class Protocol(msgspec.Struct, frozen=True, gc=False):
    """A protocol a member supports; the metadata is its own business.

    ``version`` is which version of it the member speaks, -1 where it does not say.
    """

    name: str
    metadata: bytes
    version: int = -1


class Join(Request, frozen=True, gc=False, kw_only=True):
    """JoinGroup. ``member_id`` is empty at a member's first."""

    member_id: str
    fresh_member_id: str  # what a new member will be called
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    reason: str | None = None
    must_rejoin_with_id: bool = True  # KIP-394
    may_skip_assignment: bool = True  # KIP-814


class Sync(Request, frozen=True, gc=False, kw_only=True):
    """SyncGroup; only a leader's assignments count."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None  # None where the client does not say (KIP-559)
    protocol: str | None = None
    assignments: dict[str, bytes] = {}
    assignment_error: str | None = None  # the leader's assignor failed, and this is why


class Heartbeat(Request, frozen=True, gc=False, kw_only=True):
    """A member is alive."""

    generation: int
    member_id: str
    instance_id: str | None = None


class Leaver(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member to leave: by its id, or by its instance id alone if an administrator removes it."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Leave(Request, frozen=True, gc=False, kw_only=True):
    """LeaveGroup, for one member or several."""

    leavers: tuple[Leaver, ...]


class OffsetToCommit(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Commit(Request, frozen=True, gc=False, kw_only=True):
    """OffsetCommit; generation -1 and no member for a client outside the group's protocol."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None  # only old clients ask for one of their own
    knows_group_not_found: bool = True  # understands GROUP_ID_NOT_FOUND, OffsetCommit v9 on


class FetchOffsets(Request, frozen=True, gc=False, kw_only=True):
    """OffsetFetch of the given partitions, or of all that the group has committed."""

    partitions: tuple[tuple[str, int], ...] | None


class Describe(Request, frozen=True, gc=False, kw_only=True):
    """DescribeGroups, of one group."""

    knows_group_not_found: bool = True  # KIP-1043; older clients are told the group is Dead


class DeleteGroup(Request, frozen=True, gc=False, kw_only=True):
    """DeleteGroups, of one group."""


class DeleteOffsets(Request, frozen=True, gc=False, kw_only=True):
    """OffsetDelete (KIP-496)."""

    partitions: tuple[tuple[str, int], ...]


class ListGroups(Event, frozen=True, gc=False, kw_only=True):
    """ListGroups, of one shard, filtered by states and types in small letters; none means any."""

    reply_to: Ticket
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


#: What is answered; anything else just happens.
Asked = Request | ListGroups
