"""The outcome of an event: actions and timers for the shell."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.member.events import GroupMemberMetadata, SupportedProtocol
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition


class Action(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An action that the shell must perform."""


class FindCoordinator(Action, frozen=True, gc=False, kw_only=True):
    """Find the coordinator and connect to it. Answered by `CoordinatorFound` or
    `CoordinatorNotFound`.
    """

    serial: int


class Disconnect(Action, frozen=True, gc=False, kw_only=True):
    """Close the connection of lookup ``serial``; its responses are void."""

    serial: int


# Requests to the coordinator, answered by `JoinResponseReceived` and so on, or by `CoordinatorLost`


class SendJoin(Action, frozen=True, gc=False, kw_only=True):
    """Send JoinGroup."""

    serial: int
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[SupportedProtocol, ...]
    reason: str


class SendSync(Action, frozen=True, gc=False, kw_only=True):
    """Send SyncGroup. Only a leader sets ``assignments`` and ``assignment_error``."""

    serial: int
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocol: str
    assignments: dict[str, bytes] = {}
    assignment_error: str | None = None


class SendHeartbeat(Action, frozen=True, gc=False, kw_only=True):
    """Send Heartbeat."""

    serial: int
    generation: int
    member_id: str
    instance_id: str | None


class SendLeave(Action, frozen=True, gc=False, kw_only=True):
    """Send LeaveGroup.

    A coordinator serves the requests of a connection in order. If a request is parked
    (``is_parked``), close that connection and send LeaveGroup over another one.
    """

    serial: int
    member_id: str
    instance_id: str | None
    reason: str
    is_parked: bool


# Requests to the embedded protocol


class PrepareJoin(Action, frozen=True, gc=False, kw_only=True):
    """Prepare to join: give up partitions where required and encode the metadata; then
    `JoinPrepared`.

    ``generation`` is the member's current generation, -1 if there is none (KIP-792).
    """

    serial: int
    generation: int


class ComputeAssignment(Action, frozen=True, gc=False, kw_only=True):
    """Compute the assignment as the leader; then `AssignmentComputed` or `AssignorFailed`."""

    serial: int
    generation: int
    protocol: str
    members: tuple[GroupMemberMetadata, ...]


class WatchTopics(Action, frozen=True, gc=False, kw_only=True):
    """Watch the topics of ``members``: this leader keeps the last assignment (KIP-814)."""

    members: tuple[GroupMemberMetadata, ...]


class ApplyAssignment(Action, frozen=True, gc=False, kw_only=True):
    """Apply the assignment, then `AssignmentApplied`."""

    serial: int
    generation: int
    protocol: str
    assignment: bytes


class DiscardAssignment(Action, frozen=True, gc=False, kw_only=True):
    """Discard the assignment: the member left its generation, and other members may own it.

    There is no event in answer. Requests to the embedded protocol that are not answered yet are
    void.
    """

    reason: str


class ReleaseAssignment(Action, frozen=True, gc=False, kw_only=True):
    """Give up all partitions, then `AssignmentReleased`; ``is_lost`` if they are lost already."""

    serial: int
    is_lost: bool


# Notifications to the user


class Problem(StrEnum):
    """A problem that the member recovers from by itself."""

    ASSIGNMENT_FAILED = "the assignment failed"
    POLL_TIMEOUT = "poll was not called in time"
    SUBSCRIPTION_REFUSED = "the user may not read a subscribed topic"


class ReportProblem(Action, frozen=True, gc=False, kw_only=True):
    """Report a problem to the user; ``poll`` raises it."""

    problem: Problem
    reason: str


class ReportFatalError(Action, frozen=True, gc=False, kw_only=True):
    """Report a fatal error to the user; the member is out of the group."""

    error: ErrorCode
    reason: str


class LeftGroup(Action, frozen=True, gc=False, kw_only=True):
    """The member left the group, as requested."""


# Actions of `ownership` instead of the requests to the embedded protocol


class EncodeSubscription(Action, frozen=True, gc=False, kw_only=True):
    """Encode the subscription for each assignor, then `JoinPrepared` or `JoinPrepareFailed`."""

    serial: int
    generation: int
    owned: tuple[TopicPartition, ...]


class DecodeAssignment(Action, frozen=True, gc=False, kw_only=True):
    """Decode the assignment, then `AssignmentDecoded` or `AssignmentDecodeFailed`."""

    serial: int
    generation: int
    protocol: str
    assignment: bytes


class ListenerCallback(StrEnum):
    """A callback of the rebalance listener."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class CallListener(Action, frozen=True, gc=False, kw_only=True):
    """Call the listener, then send `CallbackCompleted`. At most one call is open at a time.

    For a member that is polled, the call waits until the user's next ``poll``.
    """

    serial: int
    callback: ListenerCallback
    partitions: tuple[TopicPartition, ...]


class Outcome:
    """The actions and timers that result from one event.

    1. ``actions``, to perform in order. Requests go to the coordinator in that order, over one
       connection. Their results come back as events, at once or later, but never while `handle`
       runs.
    2. ``timers``, to arm in order, or to cancel where the deadline is None. Each key has one
       deadline: arming replaces it. Deadlines of the RETRY timer may be jittered.
    """

    __slots__ = ("actions", "timers")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.timers: list[tuple[MemberTimer, int | None]] = []
