"""The round-robin assignor: deals all partitions of all topics to the members in turn.

It is even if all members subscribe to the same topics. Otherwise a member that is the only
subscriber of many partitions also gets its turn at the other topics. The results equal those of
Kafka's RoundRobinAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.group_view import Assignment, Member, Topic


class RoundRobin(Assignor):
    """Kafka's ``roundrobin`` assignor."""

    name: ClassVar[str] = "roundrobin"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in members}
        ordered = sorted(members, key=lambda member: member.sort_key)
        wanted = [frozenset(member.topics) for member in ordered]
        subscribed = frozenset[str]().union(*wanted)
        turn = 0
        for name in sorted(topics):
            if name not in subscribed:
                continue
            for partition in range(topics[name].partition_count):
                while name not in wanted[turn]:
                    turn = (turn + 1) % len(ordered)
                shares[ordered[turn].member_id].setdefault(name, []).append(partition)
                turn = (turn + 1) % len(ordered)
        return shares
