"""What happens to a coordinator, as a `Harness` notes it down."""

from __future__ import annotations

from dataclasses import dataclass

from partage.coordinator.events import Event, Request
from partage.coordinator.outcome import GroupEvent
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.states import GroupState
from partage.coordinator.timers import TimerKey


@dataclass(frozen=True)
class RequestReceived:
    """A request came in, to a shard that was loaded or not."""

    asked: Request
    is_loaded: bool


@dataclass(frozen=True)
class EventReceived:
    """Something happened that nobody asked for."""

    event: Event


@dataclass(frozen=True)
class TimerExpired:
    """A timer fired."""

    at_ms: int
    key: TimerKey


@dataclass(frozen=True)
class GroupEventEmitted:
    """A notice; with the state that the group left, if it left one."""

    notice: GroupEvent
    before: GroupState | None


@dataclass(frozen=True)
class RecordAppended:
    """A record was given to the log."""

    record: Record


@dataclass(frozen=True)
class RecordsDurable:
    """The first of the records in doubt are durable; ``waited`` if the log held them back."""

    count: int
    waited: bool


@dataclass(frozen=True)
class ReplySent:
    """A reply left."""

    asked: Request
    reply: Reply


@dataclass(frozen=True)
class ReplyLost:
    """A connection broke with its reply still owed."""

    asked: Request


@dataclass(frozen=True)
class AppendFailed:
    """The log refused what it was given, and what was in doubt is lost."""

    count: int


@dataclass(frozen=True)
class CoordinatorCrashed:
    """The coordinator died; of the records in doubt the first few turned out to be durable."""

    kept: int
    lost: int


@dataclass(frozen=True)
class ShardLoaded:
    """The shard was loaded from what is durable, and resumed."""


TraceEntry = (
    RequestReceived
    | EventReceived
    | ShardLoaded
    | TimerExpired
    | GroupEventEmitted
    | RecordAppended
    | RecordsDurable
    | ReplySent
    | ReplyLost
    | AppendFailed
    | CoordinatorCrashed
)
