"""The state tables of the designs: the transitions of a state machine, as data.

A table lists every transition with an effect. Events that change nothing are left out. The tests
compare each table with worlds under faults, in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from typing import Any, Final

import msgspec

from partage.proposals.machine import (
    Action,
    CommitDue,
    CoordinatorOutcome,
    Event,
    MemberOutcome,
    TimerFired,
)
from partage.statemachine.pages import table
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.types import Message

#: One transition: the state before, the event, and the state after.
TransitionKey = tuple[str, str, str]


class StateTransition(msgspec.Struct, frozen=True, gc=False):
    """One row of a state table.

    Attributes:
        states: The states in which the event has these effects.
        event: The name of the event, as `event_name` returns it, or several names.
        next_state: The state after the event; None if it does not change.
        answer: The names of the effects, as `effect_names` returns them.
        condition: When the event has these effects, if it can have others.
    """

    states: tuple[StrEnum, ...]
    event: str | tuple[str, ...]
    next_state: StrEnum | None
    answer: tuple[str, ...] = ()
    condition: str = ""

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the events."""
        return (self.event,) if isinstance(self.event, str) else self.event

    @property
    def keys(self) -> list[TransitionKey]:
        """The transitions of this row."""
        return [
            (state, event, self.next_state or state)
            for state in self.states
            for event in self.events
        ]


#: The event of a member that finds at any event that it was stopped or cut off for too long.
SESSION_OVER: Final = "any, after the session"


def expand(rows: Iterable[StateTransition]) -> dict[TransitionKey, frozenset[str]]:
    """Return the effects of each transition.

    Raises:
        ValueError: Two rows have the same transition.
    """
    expanded: dict[TransitionKey, frozenset[str]] = {}
    for row in rows:
        for key in row.keys:
            if key in expanded:
                raise ValueError(f"two rows have the transition {key}")
            expanded[key] = frozenset(row.answer)
    return expanded


def without_states(
    rows: Iterable[StateTransition], states: Set[StrEnum]
) -> tuple[StateTransition, ...]:
    """Return rows without some states."""
    kept = (
        msgspec.structs.replace(
            row, states=tuple(each for each in row.states if each not in states)
        )
        for row in rows
    )
    return tuple(row for row in kept if row.states)


def transition_table(rows: Iterable[StateTransition], states: Set[str]) -> str:
    """Return the table in Markdown.

    Args:
        rows: The rows.
        states: All states in which the state machine handles events. A row for all of them has
            "any" as its state.
    """
    return table(
        ("state", "event", "condition", "next state", "answer"),
        (
            (
                "any" if states <= set(row.states) else ", ".join(row.states),
                ", ".join(row.events),
                row.condition,
                row.next_state or "",
                ", ".join(row.answer),
            )
            for row in rows
        ),
    )


#: The names of events and actions whose types do not say enough, by the name of the type.
_NAMES: Final[Mapping[str, str]] = {
    "Started": "the user starts it",
    "LeaveRequested": "the user closes it",
    "SubscriptionChanged": "other subscription",
    "Disconnected": "connection lost",
    "ClusterTopicsChanged": "topics changed",
    "PartitionCountsChanged": "topics changed",
    "ShareComputationFailed": "assignor failed",
    "RebalancingSwitched": "rebalancing switched on",
    "Connect": "connects",
    "ConnectBroker": "connects to a broker",
    "ConnectCoordinator": "connects to the coordinator",
    "Disconnect": "disconnects",
    "DisconnectBroker": "disconnects from the broker",
    "FetchMetadata": "fetches metadata",
    "ComputeShares": "computes all shares",
    "StartReading": "reads",
    "ResumeReading": "reads",
    "StopReading": "stops reading",
    "ResetPositions": "resets positions",
    "ReportError": "raises an error",
    "CreateNode": "creates the node",
    "WatchNode": "watches the node",
    "StartCoordinator": "starts the coordinator",
    "StopCoordinator": "stops the coordinator",
}


def message_name(message: Message) -> str:
    """Return the name of a message: of its API, and whether it is a response or an error."""
    name = type(message).__name__
    if not name.endswith("Response"):
        return name.removesuffix("Request")
    kind = "error" if error_code_of(message) else "response"
    return f"{name.removesuffix('Response')} {kind}"


def error_code_of(message: Message) -> int:
    """Return the error code of a message, or its first one if each partition has one."""
    if isinstance(message, OffsetCommitResponse):
        codes = (each.error_code for topic in message.topics for each in topic.partitions)
        return next(filter(None, codes), 0)
    code: int = getattr(message, "error_code", 0)
    return code


def event_name(event: Event) -> str:
    """Return the name of an event in a state table."""
    message = getattr(event, "message", None)
    if message is not None:
        return message_name(message)
    if isinstance(event, TimerFired):
        key: Any = event.key
        kind = getattr(key, "kind", None)
        if kind is not None:
            return f"{kind} timeout"
        return f"{key} timer" if isinstance(key, str) else _words(type(key))
    return _NAMES.get(type(event).__name__) or _words(type(event))


def effect_names(
    outcome: CoordinatorOutcome[Any, Any] | MemberOutcome[Any],
) -> frozenset[str]:
    """Return the names of the effects of an outcome."""
    if isinstance(outcome, MemberOutcome):
        return action_names(outcome.actions)
    names = {message_name(message) for _, message in outcome.sends}
    names |= {f"stores {_words(type(each)).removesuffix(' record')}" for each in outcome.records}
    if outcome.closes:
        names.add("closes the connection")
    return frozenset(names)


def action_names(actions: Iterable[Action]) -> frozenset[str]:
    """Return the names of actions. That of a commit is the name of the request that follows."""
    return frozenset(_action_name(each) for each in actions if not isinstance(each, CommitDue))


def _action_name(action: Action) -> str:
    message = getattr(action, "message", None)
    if message is not None:
        return message_name(message)
    return _NAMES.get(type(action).__name__) or _words(type(action))


def _words(kind: type) -> str:
    """Return the name of a type as words: "GroupRecord" is "group record"."""
    return re.sub(r"(?<=.)([A-Z])", r" \1", kind.__name__).lower()
