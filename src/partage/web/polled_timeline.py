"""Timeline of a group from polling, for clusters without group events.

DescribeGroups returns the owners of partitions, but not since when and why. A rebalance therefore
lasts from the last poll before it to the first poll after it, and its cause is the difference
between them. Two rebalances between two polls count as one. While a group rebalances,
DescribeGroups returns no assignment: a partition with the same owner afterwards counts as owned all
the time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from partage.model.groups import GroupDescription, MemberDescription
from partage.model.topic_partition import TopicPartition
from partage.web.timeline import OwnershipSpan, Timeline, TimelineMember, TimelineRebalance

SPANS_MAX: Final = 4_000
MARKS_MAX: Final = 200

#: States in which members are about to get a new assignment; the last two are from KIP-848.
REBALANCING: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)


class _Open(msgspec.Struct):
    """A rebalance that has not ended."""

    started_ms: int
    joined: dict[str, None] = msgspec.field(default_factory=dict)
    gone: dict[str, None] = msgspec.field(default_factory=dict)
    came_back: dict[str, None] = msgspec.field(default_factory=dict)


class PolledTimeline:
    """Timeline of one group: `add` descriptions of it, then read its `timeline`."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._last_ms = 0
        self._members: list[MemberDescription] = []
        self._state = ""
        self._known: dict[str, str] = {}  # Member ids by name.
        self._readers: dict[str, TimelineMember] = {}
        self._owned: dict[tuple[TopicPartition, str], OwnershipSpan] = {}
        self._spans: deque[OwnershipSpan] = deque(maxlen=SPANS_MAX)
        self._marks: deque[TimelineRebalance] = deque(maxlen=MARKS_MAX)
        self._open: _Open | None = None

    def add(self, at_ms: int, group: GroupDescription) -> None:
        """Add a description of the group; times must not decrease."""
        is_same = group.state == self._state and group.members == self._members
        if self._since_ms is None or not is_same:
            self._compare(at_ms, group)
        self._last_ms = at_ms

    def timeline(self) -> Timeline:
        """Return the timeline of everything that was added."""
        marks = list(self._marks)
        if self._open is not None:
            marks.append(self._mark(self._open))
        spans = sorted([*self._spans, *self._owned.values()], key=lambda span: span.from_ms)
        return Timeline(
            spans=spans,
            rebalances=marks,
            members=dict(self._readers),
            since_ms=self._since_ms or 0,
            is_from_events=False,
        )

    def _compare(self, at_ms: int, group: GroupDescription) -> None:
        known = {member_key(member): member.member_id for member in group.members}
        is_first, before_ms = self._since_ms is None, self._last_ms
        if is_first:
            self._since_ms = before_ms = at_ms
        is_rebalancing = group.state in REBALANCING
        owners = self._owners(group)
        has_moved = not is_rebalancing and owners.keys() != self._owned.keys()
        has_others = not is_first and known != self._known
        if self._open is None and (is_rebalancing or (not is_first and (has_moved or has_others))):
            self._open = _Open(started_ms=before_ms)
        if self._open is not None and not is_first:
            self._note(self._open, known)
        self._known, self._members, self._state = known, group.members, group.state
        for member in group.members:
            name = member_key(member)
            reader = TimelineMember(name=name, client_id=member.client_id, host=member.host)
            self._readers[name] = reader
        if not is_rebalancing:
            moved = self._own(at_ms, owners)
            self._end(at_ms, "assigned" if known else "emptied", moved)
        self._forget_readers()

    def _owners(self, group: GroupDescription) -> dict[tuple[TopicPartition, str], None]:
        return {
            (TopicPartition(of.topic, partition), member_key(member)): None
            for member in group.members
            for of in member.partitions
            for partition in of.partitions
        }

    def _note(self, rebalance: _Open, known: dict[str, str]) -> None:
        for name, member_id in known.items():
            if name not in self._known:
                rebalance.joined[name] = None
            elif self._known[name] != member_id:
                rebalance.came_back[name] = None
        for name in self._known.keys() - known.keys():
            rebalance.gone[name] = None

    def _own(self, at_ms: int, owners: dict[tuple[TopicPartition, str], None]) -> int:
        """Replace the owners. Return the number of partitions that moved to another member."""
        stopped_ms = self._open.started_ms if self._open is not None else at_ms
        before: dict[TopicPartition, set[str]] = {}
        for key, span in list(self._owned.items()):
            before.setdefault(key[0], set()).add(key[1])
            if key not in owners:
                del self._owned[key]
                to_ms = max(stopped_ms, span.from_ms)
                self._spans.append(msgspec.structs.replace(span, to_ms=to_ms))
        moved: set[TopicPartition] = set()
        for partition, name in owners:
            if (partition, name) in self._owned:
                continue
            if partition in before:
                moved.add(partition)
            self._owned[partition, name] = OwnershipSpan(
                topic=partition.topic, partition=partition.partition, member=name, from_ms=at_ms
            )
        return len(moved)

    def _end(self, at_ms: int, outcome: str, moved: int) -> None:
        rebalance, self._open = self._open, None
        if rebalance is not None:
            mark = self._mark(rebalance)
            ended = msgspec.structs.replace(mark, ended_ms=at_ms, outcome=outcome, moved=moved)
            self._marks.append(ended)

    def _mark(self, rebalance: _Open) -> TimelineRebalance:
        changed = [*rebalance.joined, *rebalance.gone, *rebalance.came_back]
        return TimelineRebalance(
            started_ms=rebalance.started_ms,
            cause=_cause(rebalance),
            member=changed[0] if len(changed) == 1 else None,
            joined=len(rebalance.joined),
            left=len(rebalance.gone),
        )

    def _forget_readers(self) -> None:
        if len(self._readers) <= 2 * len(self._known) + MARKS_MAX:
            return
        needed = {span.member for span in self._spans} | self._known.keys()
        needed |= {mark.member for mark in self._marks if mark.member is not None}
        self._readers = {name: of for name, of in self._readers.items() if name in needed}


def member_key(member: MemberDescription) -> str:
    """Return the instance id of a member, which survives a restart, or else its member id."""
    return member.group_instance_id or member.member_id


def _cause(rebalance: _Open) -> str:
    words = []
    if rebalance.joined:
        words.append("joined")
    if rebalance.gone:
        words.append("removed")
    if words:
        many = len(rebalance.joined) + len(rebalance.gone) > 1
        return f"{'members' if many else 'member'} {' and '.join(words)}"
    return "static member came back" if rebalance.came_back else "unknown"
