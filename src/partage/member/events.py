"""The events of a member.

A response to an action carries the action's ``serial``; the member ignores a late one. The bridge
creates the coordinator's responses from wire messages of any version.
"""

from __future__ import annotations

import msgspec

from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

#: A topic and a partition number. Groups with another purpose may use any pair of that form.


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event at ``at_ms``, on a monotonic clock in ms."""

    at_ms: int


class TimerFired(Event, frozen=True, gc=False, kw_only=True):
    """A timer reached its deadline."""

    key: MemberTimer


# Requests of the user


class StartRequested(Event, frozen=True, gc=False, kw_only=True):
    """Join the group and stay in it."""


class Polled(Event, frozen=True, gc=False, kw_only=True):
    """The user called ``poll`` (``is_in_poll``), or ``poll`` returned.

    The poll timer does not run while the user waits in ``poll``. Send this event before delivering
    records: after a stall of the process, the member may have lost its partitions.
    """

    is_in_poll: bool


class RejoinRequested(Event, frozen=True, gc=False, kw_only=True):
    """Rejoin, because the member's metadata changed or a rebalance is requested (KIP-568)."""

    reason: str
    # True if an operation failed, so that the member waits before it rejoins
    has_backoff: bool = False


class MetadataChanged(Event, frozen=True, gc=False, kw_only=True):
    """Topics changed; the member may collect several changes before it rejoins.

    Without ``is_own_subscription`` the changed topics are those that the leader assigned, so only a
    leader rejoins. With it, the member's own subscription changed.
    """

    reason: str
    is_own_subscription: bool = False


class LeaveRequested(Event, frozen=True, gc=False, kw_only=True):
    """Leave the group: ``unsubscribe`` and ``close``.

    A static member does not send LeaveGroup, so that it keeps its assignment if it returns in time
    (KIP-345). ``sends_leave_group`` overrides this default (KIP-1092).
    """

    reason: str  # KIP-800
    sends_leave_group: bool | None = None


# Responses of the coordinator


class CoordinatorFound(Event, frozen=True, gc=False, kw_only=True):
    """FindCoordinator succeeded and the connection is open."""

    serial: int


class CoordinatorNotFound(Event, frozen=True, gc=False, kw_only=True):
    """FindCoordinator failed. ``error`` is None if no broker could be asked."""

    serial: int
    error: ErrorCode | None = None


class CoordinatorLost(Event, frozen=True, gc=False, kw_only=True):
    """The connection of lookup ``serial`` is closed, and its unanswered requests are void."""

    serial: int


class CoordinatorResponse(Event, frozen=True, gc=False, kw_only=True):
    """A response of the coordinator."""

    serial: int
    error: ErrorCode = ErrorCode.NONE


class GroupMemberMetadata(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group member as JoinGroup describes it to the leader."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes = b""


class JoinResponseReceived(CoordinatorResponse, frozen=True, gc=False, kw_only=True):
    """The JoinGroup response; only the leader gets ``members``."""

    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None  # None if the coordinator does not send it (before KIP-559)
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False  # KIP-814
    members: tuple[GroupMemberMetadata, ...] = ()


class SyncResponseReceived(CoordinatorResponse, frozen=True, gc=False, kw_only=True):
    """The SyncGroup response."""

    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    assignment_error: str | None = None  # The reason, if the leader could not assign


class HeartbeatResponseReceived(CoordinatorResponse, frozen=True, gc=False, kw_only=True):
    """The Heartbeat response."""


class LeaveResponseReceived(CoordinatorResponse, frozen=True, gc=False, kw_only=True):
    """The LeaveGroup response."""


class CommitRejected(Event, frozen=True, gc=False, kw_only=True):
    """OffsetCommit of this member and generation failed as a whole."""

    generation: int
    member_id: str
    error: ErrorCode


# Results of the embedded protocol


class SupportedProtocol(msgspec.Struct, frozen=True, gc=False):
    """A protocol that the member supports, with its metadata for it.

    ``version`` is the protocol version that the member uses, -1 without versions. A coordinator
    that knows versions prefers a member of the highest version as leader (KIP-429).
    """

    name: str
    metadata: bytes
    version: int = -1


class JoinPrepared(Event, frozen=True, gc=False, kw_only=True):
    """`PrepareJoin` is done: the protocols, the most preferred (newest) first."""

    serial: int
    protocols: tuple[SupportedProtocol, ...]


class JoinPrepareFailed(Event, frozen=True, gc=False, kw_only=True):
    """The metadata could not be encoded, because the user's assignor raised."""

    serial: int
    reason: str


class AssignmentComputed(Event, frozen=True, gc=False, kw_only=True):
    """`ComputeAssignment` is done: the assignment of each member, by member id."""

    serial: int
    assignments: dict[str, bytes]


class AssignorFailed(Event, frozen=True, gc=False, kw_only=True):
    """The assignor raised, or its result is not a valid assignment.

    ``assignments`` carries the error to the members in the embedded protocol, for coordinators that
    do not support a SyncGroup without an assignment.
    """

    serial: int
    reason: str
    assignments: dict[str, bytes] = {}


class AssignmentApplied(Event, frozen=True, gc=False, kw_only=True):
    """`ApplyAssignment` is done."""

    serial: int


class AssignmentReleased(Event, frozen=True, gc=False, kw_only=True):
    """`ReleaseAssignment` is done."""

    serial: int


# Events for members that own partitions (`ownership`)


class SubscriptionChanged(Event, frozen=True, gc=False, kw_only=True):
    """The topics to consume from now on; ``is_by_pattern`` if a pattern matches other topics.

    ``regex`` is a regular expression of more topics that the coordinator matches, which only the
    consumer group protocol has.
    """

    topics: frozenset[str]
    is_by_pattern: bool = False
    regex: str | None = None


class DrainRequested(Event, frozen=True, gc=False, kw_only=True):
    """Leave as soon as other members can take the partitions, and keep working until then.

    With `LeaveRequested` the partitions wait for the other members' next heartbeats. This event
    first starts a rebalance, in which no partition has to move. At its end the members send
    heartbeats more often for a while (ours do, see `CoordinatorLink`), and the member then gives up
    all partitions. Under the eager protocol, where every rebalance revokes all partitions, it is
    the same as `LeaveRequested`.
    """

    reason: str


class AssignmentDecoded(Event, frozen=True, gc=False, kw_only=True):
    """`DecodeAssignment` is done. ``is_subscribed`` is False if it has a topic that is not
    subscribed.

    ``rejoin_reason`` is set if the member must rejoin after applying the assignment, with other
    metadata: the leader did not read what this member sent.
    """

    serial: int
    partitions: tuple[TopicPartition, ...]
    is_subscribed: bool = True
    rejoin_reason: str | None = None


class AssignmentDecodeFailed(Event, frozen=True, gc=False, kw_only=True):
    """The assignment reports that the leader could not assign, or it cannot be decoded."""

    serial: int
    reason: str


class CallbackCompleted(Event, frozen=True, gc=False, kw_only=True):
    """The listener callback returned. An exception in it does not undo the rebalance step."""

    serial: int
