"""The trace entries that a `Harness` records."""

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
    """A request arrived, at a shard that was loaded or not."""

    asked: Request
    is_loaded: bool


@dataclass(frozen=True)
class EventReceived:
    """An event arrived that is no request."""

    event: Event


@dataclass(frozen=True)
class TimerExpired:
    """A timer fired."""

    at_ms: int
    key: TimerKey


@dataclass(frozen=True)
class GroupEventEmitted:
    """A group event; with the state that the group left, if it changed."""

    notice: GroupEvent
    before: GroupState | None


@dataclass(frozen=True)
class RecordAppended:
    """A record was given to the log."""

    record: Record


@dataclass(frozen=True)
class RecordsDurable:
    """The first records in doubt became durable; ``waited`` if the log held them back."""

    count: int
    waited: bool


@dataclass(frozen=True)
class ReplySent:
    """A reply was sent."""

    asked: Request
    reply: Reply


@dataclass(frozen=True)
class ReplyLost:
    """A connection broke before its reply was sent."""

    asked: Request


@dataclass(frozen=True)
class AppendFailed:
    """The log rejected an append, and the records in doubt are lost."""

    count: int


@dataclass(frozen=True)
class CoordinatorCrashed:
    """The coordinator crashed; the first ``kept`` records in doubt became durable."""

    kept: int
    lost: int


@dataclass(frozen=True)
class ShardLoaded:
    """The shard was loaded from the durable records, and resumed."""


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
