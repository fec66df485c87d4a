"""What happens to a coordinator, as a `Harness` notes it down."""

from __future__ import annotations

from dataclasses import dataclass

from partage.coordinator.events import Asked, Event
from partage.coordinator.outcome import Notice
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.states import GroupState
from partage.coordinator.timers import TimerKey


@dataclass(frozen=True)
class Heard:
    """A request came in, to a shard that was loaded or not."""

    asked: Asked
    is_loaded: bool


@dataclass(frozen=True)
class Learnt:
    """Something happened that nobody asked for."""

    event: Event


@dataclass(frozen=True)
class Fired:
    """A timer fired."""

    at_ms: int
    key: TimerKey


@dataclass(frozen=True)
class Noted:
    """A notice; with the state that the group left, if it left one."""

    notice: Notice
    before: GroupState | None


@dataclass(frozen=True)
class Written:
    """A record was given to the log."""

    record: Record


@dataclass(frozen=True)
class Durable:
    """The first of the records in doubt are durable; ``waited`` if the log held them back."""

    count: int
    waited: bool


@dataclass(frozen=True)
class Answered:
    """A reply left."""

    asked: Asked
    reply: Reply


@dataclass(frozen=True)
class Lost:
    """A connection broke with its reply still owed."""

    asked: Asked


@dataclass(frozen=True)
class Failed:
    """The log refused what it was given, and what was in doubt is lost."""

    count: int


@dataclass(frozen=True)
class Crashed:
    """The coordinator died; of the records in doubt the first few turned out to be durable."""

    kept: int
    lost: int


@dataclass(frozen=True)
class Loaded:
    """The shard was loaded from what is durable, and resumed."""


Entry = (
    Heard | Learnt | Loaded | Fired | Noted | Written | Durable | Answered | Lost | Failed | Crashed
)
