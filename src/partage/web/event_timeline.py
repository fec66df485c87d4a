"""Timeline of a group from the coordinator's events in ``__group_events``, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from partage.coordinator.outcome import GroupEventType
from partage.pipelines.rebalances.event_decoder import parse_event
from partage.pipelines.rebalances.group_analysis import GroupAnalysis
from partage.store.group_events import LAG, GroupEventRecord, order_by_epoch
from partage.web.timeline import OwnershipSpan, Timeline, TimelineMember, TimelineRebalance

EVENTS_MAX: Final = 1_000
BYTES_MAX: Final = 1024 * 1024

_STABLE: Final = "Stable"
_ASSIGNING: Final = "Assigning"
_RECONCILING: Final = "Reconciling"
#: State of a group after an event.
_STATES: Final = {
    GroupEventType.REBALANCE_STARTED: "PreparingRebalance",
    GroupEventType.GENERATION_STARTED: "CompletingRebalance",
    GroupEventType.ASSIGNED: _STABLE,
    GroupEventType.EMPTIED: "Empty",
    GroupEventType.EPOCH_RAISED: _ASSIGNING,
    GroupEventType.TARGET_ASSIGNED: _RECONCILING,
}


class _StateChange(NamedTuple):
    state: str
    at_ms: int


class EventTimeline:
    """Timeline of one group; `add` accepts events of several brokers out of order."""

    def __init__(self) -> None:
        self._values: deque[bytes] = deque()
        self._made: Timeline | None = None
        self._first_ms: int | None = None
        self._lag = 0
        self._state: _StateChange | None = None
        #: Generation of the last event.
        self.generation: int | None = None
        self.bytes = 0

    def add(self, event: GroupEventRecord, value: bytes) -> int | None:
        """Add an event and its record value.

        Returns:
            The total lag after the last part of a lag event; otherwise None.
        """
        if event.event == LAG:
            if event.part == 1:
                self._lag = 0
            self._lag += sum(sum(of.values()) for of in (event.lag or {}).values())
            return self._lag if event.part == event.parts else None
        state = _STATES.get(event.event)  # type: ignore[call-overload] # a StrEnum is its text
        is_outdated = event.target_epoch not in (None, event.generation)
        if state is not None and not is_outdated:
            self._state = _StateChange(state, event.at_ms)
        if event.generation >= 0:
            self.generation = event.generation
        self._values.append(value)
        self.bytes += len(value)
        while len(self._values) > EVENTS_MAX or self.bytes > BYTES_MAX:
            self._drop()
        self._made = None
        return None

    def state_since_ms(self, state: str) -> int | None:
        """Return the time of the last reported state change, if it led to this state."""
        if self._state is None:
            return None
        last, at_ms = self._state
        if state == _STABLE and last == _RECONCILING:
            return self._reconciled_ms()
        return at_ms if last == state else None

    def _reconciled_ms(self) -> int | None:
        """Return when the members of a group with the consumer protocol reached the last target."""
        timeline = self.timeline()
        last = timeline.rebalances[-1] if timeline is not None and timeline.rebalances else None
        return None if last is None else last.ended_ms

    def drop_older_half(self) -> None:
        """Drop the older half of the events."""
        for _ in range((len(self._values) + 1) // 2):
            self._drop()
        self._made = None

    def timeline(self) -> Timeline | None:
        """Return the timeline; None if the events contain no rebalance and no owner."""
        if self._made is None:
            self._made = self._analysed()
        made = self._made
        return made if made.spans or made.rebalances else None

    def _drop(self) -> None:
        self.bytes -= len(self._values.popleft())

    def _analysed(self) -> Timeline:
        history = GroupAnalysis("")
        values = list(self._values)
        for index in order_by_epoch(values):
            history.apply(parse_event(values[index]))
        return Timeline(
            spans=[
                OwnershipSpan(
                    topic=row.topic,
                    partition=row.partition,
                    member=row.member,
                    from_ms=row.from_at,
                    to_ms=row.to_at,
                    generation=row.generation,
                )
                for row in sorted(history.ownership, key=lambda row: row.from_at)
            ],
            rebalances=[
                TimelineRebalance(
                    started_ms=row.started_at,
                    ended_ms=row.ended_at,
                    cause=_cause(row.cause, is_follow_up=row.is_follow_up),
                    member=row.member,
                    reason=row.reason,
                    outcome=row.outcome,
                    generation=row.generation,
                    joined=row.joined,
                    left=row.left,
                    expired=row.expired,
                    moved=row.moved,
                    stalled_ms=row.stalled_ms,
                )
                for row in history.rebalances
            ],
            members={
                row.member: TimelineMember(
                    name=row.member, client_id=row.client_id, host=row.client_host
                )
                for row in history.members
            },
            since_ms=history.group.first_at,
            is_from_events=True,
            is_complete=history.group.is_complete,
        )


def _cause(cause: str, *, is_follow_up: bool) -> str:
    return f"{cause} (follow-up rebalance: assigns revoked partitions)" if is_follow_up else cause
