"""The events and outcomes of the state machines of all proposals.

A coordinator serves many connections. A member has at most one, to its coordinator. A shell
delivers the messages of a connection in order, and each response after those of earlier requests.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, NewType, Protocol, TypeVar

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.statemachine.context import TimerContext
from partage.wire.types import Message

#: A connection of a coordinator. Numbers are not used again.
ConnectionId = NewType("ConnectionId", int)

Key = TypeVar("Key", bound=Hashable)
RecordT = TypeVar("RecordT")


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event at ``at_ms``, in ms on a clock that never goes back."""

    at_ms: int


class MessageReceived(Event, frozen=True, gc=False, kw_only=True):
    """A message arrived at the coordinator.

    ``draw`` is a random number of 64 bits, for new member ids and random choices.
    """

    connection: ConnectionId
    message: Message
    draw: int


class ConnectionLost(Event, frozen=True, gc=False, kw_only=True):
    """A connection of the coordinator was closed by the member or is broken."""

    connection: ConnectionId


class TimerFired(Event, frozen=True, gc=False, kw_only=True):
    """A timer reached its deadline. ``draw`` is as in `MessageReceived`."""

    key: Hashable
    draw: int = 0


class Elected(Event, frozen=True, gc=False, kw_only=True):
    """The coordinator begins its work. ``topics`` has the partition count of each topic."""

    topics: dict[str, int]


class ClusterTopicsChanged(Event, frozen=True, gc=False, kw_only=True):
    """The coordinator's watches found other topics or partition counts."""

    topics: dict[str, int]


class CoordinatorOutcome(TimerContext[Key], Generic[Key, RecordT]):
    """The effects of one event of a coordinator.

    1. ``records`` were applied. The shell stores them.
    2. ``timers`` are armed, or cancelled if the deadline is None, in order.
    3. ``sends`` are sent when ``records`` are durable.
    4. ``closes`` are closed after that.
    """

    __slots__ = ("at_ms", "closes", "draw", "records", "sends", "timers")

    def __init__(self, at_ms: int, draw: int = 0) -> None:
        self.at_ms = at_ms
        self.draw = draw
        self.records: list[RecordT] = []
        self.timers: list[tuple[Key, int | None]] = []
        self.sends: list[tuple[ConnectionId, Message]] = []
        self.closes: list[ConnectionId] = []

    def send(self, connection: ConnectionId, message: Message) -> None:
        """Send a message once the records of this outcome are durable."""
        self.sends.append((connection, message))


# Events of a member


class Started(Event, frozen=True, gc=False, kw_only=True):
    """The user starts the member."""


class LeaveRequested(Event, frozen=True, gc=False, kw_only=True):
    """The user closes the member."""


class SubscriptionChanged(Event, frozen=True, gc=False, kw_only=True):
    """The user subscribes to other topics."""

    topics: frozenset[str]


class Connected(Event, frozen=True, gc=False, kw_only=True):
    """The connection to the coordinator is open."""


class Disconnected(Event, frozen=True, gc=False, kw_only=True):
    """The connection is closed, or the coordinator was not found."""


class ResponseReceived(Event, frozen=True, gc=False, kw_only=True):
    """A message of the coordinator arrived."""

    message: Message


class MetadataFetched(Event, frozen=True, gc=False, kw_only=True):
    """The result of `FetchMetadata`: the partition count of each topic of the cluster."""

    topics: dict[str, int]


class PartitionCountsChanged(Event, frozen=True, gc=False, kw_only=True):
    """The member's periodic metadata refresh found other partition counts."""

    topics: dict[str, int]


class PositionsTaken(Event, frozen=True, gc=False, kw_only=True):
    """The answer to `CommitDue`: the offset of the next record of each partition.

    Partitions of which the member has read nothing are left out.
    """

    positions: dict[TopicPartition, int]


# Actions of a member


class Action(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An action that the shell performs."""


class Connect(Action, frozen=True, gc=False, kw_only=True):
    """Find the coordinator and connect to it; then `Connected` or `Disconnected`."""


class Disconnect(Action, frozen=True, gc=False, kw_only=True):
    """Close the connection. No event follows."""


class Send(Action, frozen=True, gc=False, kw_only=True):
    """Send a message to the coordinator."""

    message: Message


class FetchMetadata(Action, frozen=True, gc=False, kw_only=True):
    """Fetch the metadata of the cluster from any broker or from the coordinator; then
    `MetadataFetched`.
    """

    is_from_coordinator: bool = False


class StartReading(Action, frozen=True, gc=False, kw_only=True):
    """Read these partitions too, from these offsets (-1: none is committed)."""

    offsets: dict[TopicPartition, int]


class StopReading(Action, frozen=True, gc=False, kw_only=True):
    """Stop reading these partitions, or all if None. Their positions can still be committed."""

    partitions: frozenset[TopicPartition] | None = None


class ResumeReading(Action, frozen=True, gc=False, kw_only=True):
    """Read these partitions again from where the member stopped: it owned them all the time."""

    partitions: frozenset[TopicPartition]


class CommitDue(Action, frozen=True, gc=False, kw_only=True):
    """Commit the positions of these partitions; then `PositionsTaken`."""

    partitions: frozenset[TopicPartition]


class ReportError(Action, frozen=True, gc=False, kw_only=True):
    """Raise an error to the user; the member has left the group."""

    reason: str


class MemberOutcome(TimerContext[Key]):
    """The effects of one event of a member: ``actions`` in order, and timers to arm."""

    __slots__ = ("actions", "at_ms", "timers")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.actions: list[Action] = []
        self.timers: list[tuple[Key, int | None]] = []

    def act(self, action: Action) -> None:
        """Add an action."""
        self.actions.append(action)

    def send(self, message: Message) -> None:
        """Send a message to the coordinator."""
        self.actions.append(Send(message=message))


# The state machines


class CoordinatorMachine(Protocol):
    """The state machine of a coordinator."""

    def handle(self, event: Event) -> CoordinatorOutcome[Any, Any]:
        """Handle an event and return its effects."""

    def apply(self, record: Any) -> None:
        """Apply a stored record while loading."""


class MemberMachine(Protocol):
    """The state machine of a member."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of the current assignment."""

    def handle(self, event: Event) -> MemberOutcome[Any]:
        """Handle an event and return its effects."""

    @property
    def is_stable(self) -> bool:
        """True if the member has its assignment and nothing to do."""
