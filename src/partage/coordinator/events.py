"""Events that a shard handles.

A request carries all input of a decision: the time, a generated member id, a ticket for the reply,
and the client's capabilities instead of API versions. The bridge creates requests from wire
messages.
"""

from __future__ import annotations

from typing import NewType

import msgspec

from partage.coordinator.timers import TimerKey
from partage.model.topic_partition import TopicPartition

#: A reply owed. It is opaque to the coordinator, which answers each ticket exactly once.
Ticket = NewType("Ticket", object)


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event at ``at_ms``, in ms since the epoch on a clock that never goes back."""

    at_ms: int


class TimerFired(Event, frozen=True, gc=False, kw_only=True):
    """A timer reached its deadline."""

    key: TimerKey


class TopicsDeleted(Event, frozen=True, gc=False, kw_only=True):
    """Topics were deleted; the offsets that groups committed for them must go too."""

    topics: frozenset[str]


class GroupRequest(Event, frozen=True, gc=True, kw_only=True):
    """A request to one group.

    The garbage collector tracks it: a ticket refers to a connection, and so to the shard in which
    the request waits.
    """

    reply_to: Ticket
    group_id: str


class Protocol(msgspec.Struct, frozen=True, gc=False):
    """A protocol that a member supports. The coordinator does not read the metadata.

    ``version`` is the member's version of the protocol; -1 if the member does not state one.
    """

    name: str
    metadata: bytes
    version: int = -1


class Join(GroupRequest, frozen=True, kw_only=True):
    """JoinGroup. ``member_id`` is empty in the first request of a member."""

    member_id: str
    generated_member_id: str  # the id to assign if the member is new
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


class Sync(GroupRequest, frozen=True, kw_only=True):
    """SyncGroup. Only the leader's assignments are used."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None  # None if the client does not state it (KIP-559)
    protocol: str | None = None
    assignments: dict[str, bytes] = {}
    assignment_error: str | None = None  # the reason why the leader's assignor failed


class Heartbeat(GroupRequest, frozen=True, kw_only=True):
    """Heartbeat of a member."""

    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member to remove: by member id, or by instance id alone if an administrator removes it."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Leave(GroupRequest, frozen=True, kw_only=True):
    """LeaveGroup, for one or more members."""

    members: tuple[LeavingMember, ...]


class OffsetToCommit(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The offset to commit for one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Commit(GroupRequest, frozen=True, kw_only=True):
    """OffsetCommit. Generation -1 and no member id mean a client that is not a member."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None  # requested by old clients only
    knows_group_not_found: bool = True  # supports GROUP_ID_NOT_FOUND (OffsetCommit v9 and later)


class TransactionalCommit(GroupRequest, frozen=True, kw_only=True):
    """TxnOffsetCommit. The caller has checked that the producer's transaction is ongoing.

    Generation -1 and no member id come from old producers, and are not fenced by the group.
    """

    producer_id: int
    producer_epoch: int
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...]


class CompleteTransaction(Event, frozen=True, gc=True, kw_only=True):
    """A transaction ended that has committed offsets to groups of the shard."""

    reply_to: Ticket
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class FetchOffsets(GroupRequest, frozen=True, kw_only=True):
    """OffsetFetch of the given partitions, or of all committed ones if None.

    With ``requires_stable``, a partition with pending offsets of a transaction has no result.
    """

    partitions: tuple[TopicPartition, ...] | None
    requires_stable: bool = False
    member_id: str | None = None  # of a consumer group, from v9 on
    member_epoch: int = -1


class DescribeGroup(GroupRequest, frozen=True, kw_only=True):
    """DescribeGroups, for one group."""

    knows_group_not_found: bool = True  # KIP-1043; older clients get state Dead instead


class DeleteGroup(GroupRequest, frozen=True, kw_only=True):
    """DeleteGroups, for one group."""


class DeleteOffsets(GroupRequest, frozen=True, kw_only=True):
    """OffsetDelete (KIP-496)."""

    partitions: tuple[TopicPartition, ...]


class ListGroups(Event, frozen=True, gc=True, kw_only=True):
    """ListGroups, for one shard. The filters are in lower case; an empty filter matches every
    group.
    """

    reply_to: Ticket
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


#: The events that need a reply.
Request = GroupRequest | ListGroups | CompleteTransaction
