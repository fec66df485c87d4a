"""Consistent hashing: the assignment depends on members and topics, not on earlier assignments."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.cooperation import hold_back
from partage.assignors.group_view import Assignment, Member, Topic
from partage.model.arguments import check_int, check_number
from partage.model.rebalance_protocol import RebalanceProtocol


class ConsistentHashing(Assignor):
    """Assigns partitions by consistent hashing with bounded loads.

    Each member has ``points`` positions on a hash ring, and takes the partitions before them. If a
    member joins or leaves, little moves besides its own partitions, even if the group lost its
    state. A static member always has the same positions. A member gets at most ``headroom`` above
    the average; further partitions go to the next member (Mirrokni, Thorup, Zadimoghaddam:
    Consistent hashing with bounded loads, 2016). Less even than the sticky assignors, but needs no
    state.

    With ``headroom=None`` there is no bound. The owner of a partition then depends on the members
    alone: it stays when partitions are added, and members that know different partition counts
    compute the same owners. The loads are less even.

    Args:
        points: The positions of each member on the ring, at least 1.
        headroom: The part by which a load may exceed the average; None for no bound.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    name: ClassVar[str] = "consistent-hashing"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, *, points: int = 100, headroom: float | None = 0.25) -> None:
        check_int("points", points, least=1)
        if headroom is not None:
            check_number("headroom", headroom)
        self.points = points
        self.headroom = headroom

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        wants = [frozenset(member.topics) for member in ordered]
        ring = sorted(
            (_ring_point(f"{member.instance_id or member.member_id}#{point}"), position)
            for position, member in enumerate(ordered)
            for point in range(self.points)
        )
        ring_points = [point for point, _ in ring]
        wanted = sorted(frozenset[str]().union(*wants).intersection(topics))
        count = sum(topics[name].partition_count for name in wanted)
        most = (
            float(count)
            if self.headroom is None
            else (1 + self.headroom) * count / max(1, len(ordered))
        )
        room = [ceil(round(most, 9))] * len(ordered)
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in ordered}
        for name in wanted:
            for partition in range(topics[name].partition_count):
                start = bisect(ring_points, _ring_point(f"{name}-{partition}"))
                position = _next(ring, start, name, wants, room)
                room[position] -= 1
                shares[ordered[position].member_id].setdefault(name, []).append(partition)
        return hold_back(ordered, shares)


def _ring_point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _next(
    ring: Sequence[tuple[int, int]],
    start: int,
    topic: str,
    wants: Sequence[frozenset[str]],
    room: Sequence[int],
) -> int:
    """Return the next member on the ring with room; without any, the next that wants the topic."""
    first = -1
    for step in range(len(ring)):
        position = ring[(start + step) % len(ring)][1]
        if topic in wants[position]:
            if room[position] > 0:
                return position
            if first < 0:
                first = position
    return first
