"""What can happen to a member.

An event that answers something carries its ``serial``; one that comes too late is ignored by it.
The bridge makes the coordinator's answers from wire messages, whatever their version.
"""

from __future__ import annotations

import msgspec

from partage.member.timers import Timer
from partage.model.errors import ErrorCode

#: A topic and the number of a partition; in groups for other things, anything so named.
Partition = tuple[str, int]


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something that happened at ``at_ms``, on a clock in ms that only goes on."""

    at_ms: int


class TimerFired(Event, frozen=True, gc=False, kw_only=True):
    """The deadline of a timer has come."""

    key: Timer


# What the user wants.


class Start(Event, frozen=True, gc=False, kw_only=True):
    """Be in the group from now on."""


class Polled(Event, frozen=True, gc=False, kw_only=True):
    """``poll`` is called, or returns; while somebody waits in it the member is not too slow.

    It goes in before anything is delivered: a process that stood still may have lost all.
    """

    is_waiting: bool


class RejoinWanted(Event, frozen=True, gc=False, kw_only=True):
    """What the member says of itself has changed, or it asks for a rebalance (KIP-568)."""

    reason: str
    backs_off: bool = False  # because something failed


class MetadataChanged(Event, frozen=True, gc=False, kw_only=True):
    """Topics are not what they were; changes may be gathered before the member joins again.

    What the leader made its assignment of has changed, and only a leader joins again for it; unless
    ``is_own``, for then it is what this member subscribes to.
    """

    reason: str
    is_own: bool = False


class Leave(Event, frozen=True, gc=False, kw_only=True):
    """Be in the group no longer: ``unsubscribe`` and ``close``.

    A static member leaves without a word, so that it finds its assignment when it comes back in
    time (KIP-345); ``tells`` overrides what a member does of its own accord (KIP-1092).
    """

    reason: str  # KIP-800
    tells: bool | None = None


# The coordinator.


class CoordinatorFound(Event, frozen=True, gc=False, kw_only=True):
    """FindCoordinator is answered, and the connection stands."""

    serial: int


class CoordinatorNotFound(Event, frozen=True, gc=False, kw_only=True):
    """FindCoordinator failed; without an error because nobody could be asked."""

    serial: int
    error: ErrorCode | None = None


class CoordinatorLost(Event, frozen=True, gc=False, kw_only=True):
    """The connection to the coordinator that was found as ``serial`` is gone, and all it owed."""

    serial: int


class Answer(Event, frozen=True, gc=False, kw_only=True):
    """The coordinator answers a request."""

    serial: int
    error: ErrorCode = ErrorCode.NONE


class GroupMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes = b""


class JoinAnswered(Answer, frozen=True, gc=False, kw_only=True):
    """JoinGroup; ``members`` is for the leader alone."""

    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None  # None from a coordinator that does not say (KIP-559)
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False  # KIP-814
    members: tuple[GroupMember, ...] = ()


class SyncAnswered(Answer, frozen=True, gc=False, kw_only=True):
    """SyncGroup."""

    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    assignment_error: str | None = None  # the leader could not assign, and this is why


class HeartbeatAnswered(Answer, frozen=True, gc=False, kw_only=True):
    """Heartbeat."""


class LeaveAnswered(Answer, frozen=True, gc=False, kw_only=True):
    """LeaveGroup."""


class CommitAnswered(Event, frozen=True, gc=False, kw_only=True):
    """OffsetCommit, sent in the name of that member and generation, failed as a whole."""

    generation: int
    member_id: str
    error: ErrorCode


# What the embedded protocol has done when it was asked.


class Protocol(msgspec.Struct, frozen=True, gc=False):
    """A protocol the member supports, with its metadata for it.

    ``version`` is which version of it the member speaks, -1 if there are none; a coordinator that
    knows what that is has one of the highest version lead (KIP-429).
    """

    name: str
    metadata: bytes
    version: int = -1


class Prepared(Event, frozen=True, gc=False, kw_only=True):
    """`Prepare` is done: these are the protocols, the most preferred (newest) first."""

    serial: int
    protocols: tuple[Protocol, ...]


class PrepareFailed(Event, frozen=True, gc=False, kw_only=True):
    """The metadata could not be written: an assignor of the user's raised."""

    serial: int
    reason: str


class Assigned(Event, frozen=True, gc=False, kw_only=True):
    """`Assign` is done: the assignment of each member, by its id."""

    serial: int
    assignments: dict[str, bytes]


class AssignFailed(Event, frozen=True, gc=False, kw_only=True):
    """The assignor raised, or what it gave is no assignment.

    ``assignments`` tell the members so in the embedded protocol, for coordinators that do not know
    what a SyncGroup without an assignment means.
    """

    serial: int
    reason: str
    assignments: dict[str, bytes] = {}


class Adopted(Event, frozen=True, gc=False, kw_only=True):
    """`Adopt` is done."""

    serial: int


class Released(Event, frozen=True, gc=False, kw_only=True):
    """`Release` is done."""

    serial: int


# For members that own partitions (`ownership`).


class Subscribed(Event, frozen=True, gc=False, kw_only=True):
    """The topics to consume from now on; ``by_pattern`` if a pattern matches others by itself."""

    topics: frozenset[str]
    by_pattern: bool = False


class Drain(Event, frozen=True, gc=False, kw_only=True):
    """Leave once the others are at hand to take what is owned, and work on until then.

    `Leave` makes the partitions wait for the others' next heartbeats. This has the group rebalance
    first, in which nothing need change; at its end members heartbeat more often for a while (ours
    do, see `link`), and then everything is given up. Under the eager protocol, where all give up
    everything in each rebalance, it is the same as `Leave`.
    """

    reason: str


class Decoded(Event, frozen=True, gc=False, kw_only=True):
    """`Decode` is done. ``fits`` unless a topic is among them that nobody here subscribed to.

    ``again`` is why to join again once this is taken over, saying something else: what this member
    wrote of itself was not read by its leader.
    """

    serial: int
    partitions: tuple[Partition, ...]
    fits: bool = True
    again: str | None = None


class DecodeFailed(Event, frozen=True, gc=False, kw_only=True):
    """The assignment says that the leader could not assign, or it makes no sense."""

    serial: int
    reason: str


class CallbackDone(Event, frozen=True, gc=False, kw_only=True):
    """The listener was told; whatever it raised, what was done stands."""

    serial: int
