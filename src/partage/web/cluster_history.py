"""All groups of a cluster, as they were at the last look, and what is remembered of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from partage.model.groups import GroupDescription
from partage.store.group_events import GroupEventRecord
from partage.web.event_timeline import EventTimeline
from partage.web.lag_history import LagHistory
from partage.web.polled_timeline import PolledTimeline
from partage.web.timeline import Timeline

#: Of more groups than these no history is kept; they are shown all the same.
GROUP_HISTORIES_MAX: Final = 5_000
#: For how long a group that is no longer listed is remembered: while one coordinator has gone and
#: no other has taken over, its groups are in no broker's list.
UNLISTED_KEPT_MS: Final = 5 * 60_000
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event of a group, and the record's value that it stands in."""

    event: GroupEventRecord
    value: bytes


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a cluster: its groups at a time in ms since the epoch, and the events since the
    last look. ``took_ms`` is how long the cluster took to answer; ``remark`` says why there are no
    events, if there are none.
    """

    at_ms: int
    took_ms: int
    groups: Sequence[GroupDescription]
    events: Sequence[ReceivedEvent] = ()
    remark: str = ""


class GroupHistory:
    """What is remembered of one group."""

    def __init__(self) -> None:
        self.lags = LagHistory()
        self.polled = PolledTimeline()
        self.events = EventTimeline()
        #: The first look that it was not listed in, if it has not been listed since.
        self.unlisted_since_ms: int | None = None
        #: Since when it is in its state, and whether that is known or the page began then.
        self.state = ""
        self.since_ms = 0
        self.is_since_known = False

    def add(self, at_ms: int, group: GroupDescription, *, is_first: bool) -> None:
        """The group as it was at a time."""
        self.unlisted_since_ms = None
        self.lags.add(at_ms, group.total_lag)
        self.polled.add(at_ms, group)
        if group.state != self.state:
            self.is_since_known = not is_first
            self.state, self.since_ms = group.state, at_ms
        told_ms = self.events.state_since_ms(group.state)
        if told_ms is not None:
            self.since_ms, self.is_since_known = min(told_ms, at_ms), True

    def timeline(self) -> Timeline:
        """What the coordinator has told, or else what was seen."""
        return self.events.timeline() or self.polled.timeline()


class ClusterHistory:
    """A cluster. `take` each look, or what it `failed` with; read the groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupDescription] = {}
        self._memories: dict[str, GroupHistory] = {}
        self._early: dict[str, GroupHistory] = {}  # of groups that are told of and not seen yet
        #: When the last look was that succeeded; None before the first.
        self.at_ms: int | None = None
        self.took_ms = 0
        self.remark = ""
        #: What the last look failed with, and since when they fail.
        self.failure: str | None = None
        self.failing_since_ms: int | None = None
        #: Grows with each look.
        self.poll_count = 0

    def add(self, seen: ClusterSnapshot) -> None:
        """A look that succeeded."""
        is_first = self.at_ms is None
        self.poll_count += 1
        self.at_ms, self.took_ms, self.remark = seen.at_ms, seen.took_ms, seen.remark
        self.failure = self.failing_since_ms = None
        self._groups = {group.group: group for group in seen.groups}
        self._forget(seen.at_ms)
        told_of = self._take_events(seen)
        for name, group in self._groups.items():
            memory = self._memories.get(name)
            if memory is None:
                if len(self._memories) >= GROUP_HISTORIES_MAX:
                    continue
                memory = self._memories[name] = self._remembered(name)
            memory.add(seen.at_ms, group, is_first=is_first)
        # A group may be told of a moment before it is listed; what is older is of one that is gone.
        self._early = {name: early for name, early in self._early.items() if name in told_of}

    def record_failure(self, at_ms: int, why: str) -> None:
        """A look that did not succeed."""
        self.poll_count += 1
        self.failure = why
        if self.failing_since_ms is None:
            self.failing_since_ms = at_ms

    # What there is.

    def __len__(self) -> int:
        return len(self._groups)

    def groups(self) -> Iterator[GroupDescription]:
        """All groups, as they were last."""
        return iter(self._groups.values())

    def group(self, name: str) -> GroupDescription | None:
        """A group as it was last; None if there is none of this name."""
        return self._groups.get(name)

    def history(self, name: str) -> GroupHistory | None:
        """What is remembered of a group that there is."""
        return self._memories.get(name) if name in self._groups else None

    # Inside.

    def _forget(self, now_ms: int) -> None:
        """Groups that have not been listed for long, or that others need the room of."""
        unlisted = self._memories.keys() - self._groups.keys()
        has_room = len(self._groups) + len(unlisted) <= GROUP_HISTORIES_MAX
        for name in unlisted:
            memory = self._memories[name]
            if memory.unlisted_since_ms is None:
                memory.unlisted_since_ms = now_ms
            if not has_room or now_ms - memory.unlisted_since_ms > UNLISTED_KEPT_MS:
                del self._memories[name]

    def _remembered(self, name: str) -> GroupHistory:
        return self._early.pop(name) if name in self._early else GroupHistory()

    def _take_events(self, seen: ClusterSnapshot) -> set[str]:
        """The groups that the events are of."""
        for each in seen.events:
            name = each.event.group_id
            memory = self._memories.get(name) or self._early.get(name)
            if memory is None:
                if len(self._memories) + len(self._early) >= GROUP_HISTORIES_MAX or not name:
                    continue
                memory = self._early[name] = GroupHistory()
            lag = memory.events.add(each.event, each.value)
            # Once the page looks itself, that is as good, and by one clock.
            if lag is not None and name in self._early:
                memory.lags.add(min(each.event.at_ms, seen.at_ms), lag)
        self._make_room()
        return {each.event.group_id for each in seen.events}

    def _make_room(self) -> None:
        told = [each.events for each in (*self._memories.values(), *self._early.values())]
        total = sum(each.bytes for each in told)
        while total > EVENT_BYTES_MAX:
            largest = max(told, key=lambda each: each.bytes)
            total -= largest.bytes
            largest.drop_older_half()
            total += largest.bytes
