"""All groups of a cluster in their last state, and the history of each."""

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

#: Maximum number of groups with a history. Further groups are shown without one.
GROUP_HISTORIES_MAX: Final = 5_000
#: Time to keep the history of an unlisted group. Between the failure of its coordinator and the
#: takeover by another, no broker lists the group.
UNLISTED_KEPT_MS: Final = 5 * 60_000
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event of a group, with the value of its record."""

    event: GroupEventRecord
    value: bytes


class UnstablePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose last stable offset is held back by an open transaction.

    Attributes:
        topic: the topic.
        partition: the partition.
        start_offset: the first offset of the transaction, which is the last stable offset.
        since_ms: the time since when readers wait, in ms since the epoch.
        producer_id: the producer.
        producer_epoch: its epoch.
        transactional_id: its transactional id; None if no coordinator knows the producer.
        is_hanging: True if no coordinator will end the transaction.
    """

    topic: str
    partition: int
    start_offset: int
    since_ms: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    is_hanging: bool


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of a cluster at a time in ms since the epoch, and the events since the last snapshot.

    ``took_ms`` is the response time of the cluster. ``remarks`` are reasons for missing data.
    ``held`` has partitions with open transactions, the oldest first.
    """

    at_ms: int
    took_ms: int
    groups: Sequence[GroupDescription]
    events: Sequence[ReceivedEvent] = ()
    held: Sequence[UnstablePartition] = ()
    remarks: Sequence[str] = ()


class GroupHistory:
    """History of one group."""

    def __init__(self) -> None:
        self.lags = LagHistory()
        self.polled = PolledTimeline()
        self.events = EventTimeline()
        #: Time of the first snapshot without the group, if it was not listed since.
        self.unlisted_since_ms: int | None = None
        #: State, its start, and whether the start is exact or only the start of this page.
        self.state = ""
        self.since_ms = 0
        self.is_since_known = False

    def add(self, at_ms: int, group: GroupDescription, *, is_first: bool) -> None:
        """Add a description of the group at a time."""
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
        """Return the timeline from events, or else from polling."""
        return self.events.timeline() or self.polled.timeline()


class ClusterHistory:
    """Groups of a cluster with their history. Fed by `add` and `record_failure`."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupDescription] = {}
        self._memories: dict[str, GroupHistory] = {}
        # Histories of groups with events that no snapshot has listed yet.
        self._early: dict[str, GroupHistory] = {}
        #: Time of the last successful snapshot; None before the first.
        self.at_ms: int | None = None
        self.took_ms = 0
        self.remarks: Sequence[str] = ()
        #: Partitions with open transactions, the oldest first.
        self.held: Sequence[UnstablePartition] = ()
        #: Error of the last poll, and the time of the first of consecutive errors.
        self.failure: str | None = None
        self.failing_since_ms: int | None = None
        #: Number of polls.
        self.poll_count = 0

    def add(self, seen: ClusterSnapshot) -> None:
        """Add a snapshot."""
        is_first = self.at_ms is None
        self.poll_count += 1
        self.at_ms, self.took_ms = seen.at_ms, seen.took_ms
        self.held, self.remarks = seen.held, seen.remarks
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
        # Events may arrive just before the group is listed. Older entries are of deleted groups.
        self._early = {name: early for name, early in self._early.items() if name in told_of}

    def record_failure(self, at_ms: int, why: str) -> None:
        """Record a failed poll."""
        self.poll_count += 1
        self.failure = why
        if self.failing_since_ms is None:
            self.failing_since_ms = at_ms

    def __len__(self) -> int:
        return len(self._groups)

    def groups(self) -> Iterator[GroupDescription]:
        """Return all groups of the last snapshot."""
        return iter(self._groups.values())

    def group(self, name: str) -> GroupDescription | None:
        """Return a group of the last snapshot; None if it is not in it."""
        return self._groups.get(name)

    def history(self, name: str) -> GroupHistory | None:
        """Return the history of a group; None if it is not listed, or has no history."""
        return self._memories.get(name) if name in self._groups else None

    def _forget(self, now_ms: int) -> None:
        """Drop the history of groups that are unlisted for too long, or whose room is needed."""
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
        """Add the events of a snapshot. Return their groups."""
        for each in seen.events:
            name = each.event.group_id
            memory = self._memories.get(name) or self._early.get(name)
            if memory is None:
                if len(self._memories) + len(self._early) >= GROUP_HISTORIES_MAX or not name:
                    continue
                memory = self._early[name] = GroupHistory()
            lag = memory.events.add(each.event, each.value)
            # Polled lag is as exact, and uses only one clock.
            if lag is not None and name in self._early:
                memory.lags.add(min(each.event.at_ms, seen.at_ms), lag)
        self._make_room()
        return {each.event.group_id for each in seen.events}

    def _make_room(self) -> None:
        timelines = [each.events for each in (*self._memories.values(), *self._early.values())]
        total = sum(each.bytes for each in timelines)
        while total > EVENT_BYTES_MAX:
            largest = max(timelines, key=lambda each: each.bytes)
            total -= largest.bytes
            largest.drop_older_half()
            total += largest.bytes
