"""What comes of an event, and the contract with whoever drives the core."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.member.events import GroupMember, Partition, Protocol
from partage.member.timers import Timer
from partage.model.errors import ErrorCode


class Action(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something the shell has to do."""


class FindCoordinator(Action, frozen=True, gc=False, kw_only=True):
    """Find the coordinator and connect: `CoordinatorFound` or `CoordinatorNotFound`."""

    serial: int


class Disconnect(Action, frozen=True, gc=False, kw_only=True):
    """Drop the connection to the coordinator that was found as ``serial``; its answers are void."""

    serial: int


# Requests to the coordinator, answered with `JoinAnswered`, ..., or by `CoordinatorLost`.


class SendJoin(Action, frozen=True, gc=False, kw_only=True):
    """JoinGroup."""

    serial: int
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    reason: str


class SendSync(Action, frozen=True, gc=False, kw_only=True):
    """SyncGroup; ``assignments`` and ``assignment_error`` come from a leader only."""

    serial: int
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocol: str
    assignments: dict[str, bytes] = {}
    assignment_error: str | None = None


class SendHeartbeat(Action, frozen=True, gc=False, kw_only=True):
    """Heartbeat."""

    serial: int
    generation: int
    member_id: str
    instance_id: str | None


class SendLeave(Action, frozen=True, gc=False, kw_only=True):
    """LeaveGroup.

    A coordinator serves a connection's requests in order: if one is parked (``is_parked``), drop
    that connection and send this over another.
    """

    serial: int
    member_id: str
    instance_id: str | None
    reason: str
    is_parked: bool


# What the embedded protocol is asked.


class Prepare(Action, frozen=True, gc=False, kw_only=True):
    """Get ready to join: give up what must be, write the metadata; then `Prepared`.

    ``generation`` is the one that the member is in, -1 if in none (KIP-792).
    """

    serial: int
    generation: int


class Assign(Action, frozen=True, gc=False, kw_only=True):
    """The member leads: make the assignment, and say `Assigned` or `AssignFailed`."""

    serial: int
    generation: int
    protocol: str
    members: tuple[GroupMember, ...]


class Watch(Action, frozen=True, gc=False, kw_only=True):
    """The member leads and the last assignment stands (KIP-814): watch what it was made of."""

    members: tuple[GroupMember, ...]


class Adopt(Action, frozen=True, gc=False, kw_only=True):
    """Take the assignment over, then say `Adopted`."""

    serial: int
    generation: int
    protocol: str
    assignment: bytes


class Abandon(Action, frozen=True, gc=False, kw_only=True):
    """The member is in no generation any more: what it had is somebody else's. Needs no answer.

    Void is what was asked before and not answered yet.
    """

    reason: str


class Release(Action, frozen=True, gc=False, kw_only=True):
    """Give up everything, then say `Released`; ``as_lost`` if nobody hears it any more."""

    serial: int
    as_lost: bool


# What the user has to hear.


class Problem(StrEnum):
    """What went wrong and is being mended."""

    ASSIGNMENT_FAILED = "the assignment failed"
    TOO_SLOW = "poll was not called in time"


class Report(Action, frozen=True, gc=False, kw_only=True):
    """Tell the user of a problem; ``poll`` raises it."""

    problem: Problem
    reason: str


class Fail(Action, frozen=True, gc=False, kw_only=True):
    """Tell the user of an error that is final; the member is out of the group."""

    error: ErrorCode
    reason: str


class Left(Action, frozen=True, gc=False, kw_only=True):
    """The member is out, as was wanted."""


# What members that own partitions are asked (`ownership`), in place of the embedded protocol.


class Describe(Action, frozen=True, gc=False, kw_only=True):
    """Write the subscription for each assignor, then `Prepared` or `PrepareFailed`."""

    serial: int
    generation: int
    owned: tuple[Partition, ...]


class Decode(Action, frozen=True, gc=False, kw_only=True):
    """Read the assignment, then `Decoded` or `DecodeFailed`."""

    serial: int
    generation: int
    protocol: str
    assignment: bytes


class Call(StrEnum):
    """The listener's callbacks."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class Tell(Action, frozen=True, gc=False, kw_only=True):
    """Call the listener, then `CallbackDone`. Only one such call is open at a time.

    For a member that is polled: on the user's behalf, the next time somebody polls.
    """

    serial: int
    call: Call
    partitions: tuple[Partition, ...]


class Outcome:
    """What is to be done after one event.

    1. ``actions`` in order. Requests go to the coordinator in that order, over one connection.
       What an action brings about comes back as an event, at once or later, never from within.
    2. ``timers`` are armed, or cancelled where the deadline is None, in order. A key has one
       deadline: arming replaces. Deadlines of `Timer.RETRY` may be jittered.
    """

    __slots__ = ("actions", "timers")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.timers: list[tuple[Timer, int | None]] = []
