"""The range assignor: for each topic, each member gets a range of adjacent partitions.

Topics with equal partition counts and equal subscribers are divided alike, so that a member gets
the same partition numbers of each. If members have racks and not every partition has a replica in
each of them, members get partitions in their rack first, as far as even ranges and the equal
division of like topics allow (KIP-881). The results equal those of Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.group_view import Assignment, Member, Topic
from partage.assignors.racks import is_rack_matching_useful


class Range(Assignor):
    """Kafka's ``range`` assignor."""

    name: ClassVar[str] = "range"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in members}
        subscribers: dict[str, list[Member]] = {name: [] for name in sorted(topics)}
        for member in sorted(members, key=lambda member: member.sort_key):
            for name in dict.fromkeys(member.topics):
                if name in subscribers:
                    subscribers[name].append(member)
        wanted = [
            (topics[name], wanting)
            for name, wanting in subscribers.items()
            if wanting and topics[name].partition_count
        ]
        if any(member.rack for member in members):
            divisions = [_Division(topic, wanting) for topic, wanting in wanted]
            if any(division.is_matching for division in divisions):
                _divide_by_racks(divisions, shares)
                return shares
        for topic, wanting in wanted:
            for member, numbers in zip(wanting, _even_ranges(topic, len(wanting)), strict=False):
                shares[member.member_id][topic.name] = list(numbers)
        return shares


def _even_ranges(topic: Topic, count: int) -> list[range]:
    """Return the ranges of ``count`` members, without those at the end that are empty."""
    quota, extras = divmod(topic.partition_count, count)
    longer = extras * (quota + 1)
    ranges = [range(begin, begin + quota + 1) for begin in range(0, longer, quota + 1)]
    if quota:
        begins = range(longer, topic.partition_count, quota)
        ranges += [range(begin, begin + quota) for begin in begins]
    return ranges


def _divide_by_racks(
    divisions: Sequence[_Division], shares: Mapping[str, dict[str, list[int]]]
) -> None:
    """Match racks first, then fill up to even ranges."""
    for alike in _alike(divisions):
        _match_racks(alike)
    for division in divisions:
        division.fill()
        for member_id, partitions in division.given.items():
            if partitions:
                shares[member_id][division.name] = sorted(partitions)


class _Division:
    """One topic while it is being divided."""

    def __init__(self, topic: Topic, subscribers: Sequence[Member]) -> None:
        self.name = topic.name
        self.racks = topic.racks
        self.member_racks = {m.member_id: m.rack or None for m in subscribers}
        self.partition_count = topic.partition_count
        self.unassigned = list(range(topic.partition_count))
        self.given: dict[str, list[int]] = {m.member_id: [] for m in subscribers}
        self.quota, self.extras = divmod(topic.partition_count, len(subscribers))
        self.is_matching = is_rack_matching_useful(
            {rack for rack in self.member_racks.values() if rack}, topic.racks
        )

    def room(self, member_id: str) -> int:
        """Return how many more partitions a member may get: the quota, and an extra while there are
        any.
        """
        return max(0, self.quota + (self.extras > 0) - len(self.given[member_id]))

    def suits(self, member_id: str, partition: int) -> bool:
        """True if a replica is in the member's rack, or the member has no rack."""
        rack = self.member_racks[member_id]
        return rack is None or (partition < len(self.racks) and rack in self.racks[partition])

    def give(self, member_id: str, partitions: Sequence[int]) -> None:
        """Assign partitions to a member; the caller removes them from ``unassigned``."""
        self.given[member_id] += partitions
        self.extras -= len(self.given[member_id]) > self.quota

    def fill(self) -> None:
        """Give each member a range of the unassigned partitions."""
        begin = 0
        for member_id in self.given:
            if room := self.room(member_id):
                self.give(member_id, self.unassigned[begin : begin + room])
                begin += room

    def fill_in_racks(self) -> None:
        """Give each member a range of the unassigned partitions that match its rack."""
        for member_id in self.given:
            suiting = [p for p in self.unassigned if self.suits(member_id, p)]
            if stretch := suiting[: self.room(member_id)]:
                self.give(member_id, stretch)
                taken = frozenset(stretch)
                self.unassigned = [p for p in self.unassigned if p not in taken]


def _alike(divisions: Sequence[_Division]) -> list[list[_Division]]:
    """Group topics that must be divided alike."""
    groups: dict[object, list[_Division]] = {}
    for division in divisions:
        key = division.partition_count, tuple(division.member_racks.items())
        groups.setdefault(key, []).append(division)
    return list(groups.values())


def _match_racks(alike: Sequence[_Division]) -> None:
    if len(alike) == 1:
        if alike[0].is_matching:
            alike[0].fill_in_racks()
        return
    if not any(alike[0].member_racks.values()):
        return  # No member has a rack: plain ranges are alike already
    remaining = dict.fromkeys(alike[0].given)
    for partition in range(alike[0].partition_count):
        for member_id in remaining:
            if all(d.suits(member_id, partition) and d.room(member_id) for d in alike):
                for division in alike:
                    division.give(member_id, [partition])
                    division.unassigned.remove(partition)
                if not any(division.room(member_id) for division in alike):
                    del remaining[member_id]
                break
