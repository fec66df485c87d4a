"""The lag-based assignor: spreads the records that are not read yet evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.group_view import Assignment, Member, Topic


class LagBased(Assignor):
    """Assigns the partitions with the largest lag first, each to the member with fewest partitions.

    If several members have equally few, it takes the one with the smallest total lag. The numbers
    of partitions stay even, because lags are temporary and the assignment may outlast them. The
    assignor ignores current owners: lags change all the time, and with them the assignment. So it
    is eager.
    """

    name: ClassVar[str] = "lag-based"
    needs_lags: ClassVar[bool] = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        alike: dict[frozenset[str], list[tuple[int, int, int]]] = {}
        for position, member in enumerate(ordered):
            wants = frozenset(member.topics).intersection(topics)
            alike.setdefault(wants, []).append((0, 0, position))
        for heap in alike.values():
            heapify(heap)
        takers = {name: [heap for wants, heap in alike.items() if name in wants] for name in topics}
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in ordered}
        # Topics with few subscribers first among equal lags: later ones can even out the result.
        for lag, _, name, partition in sorted(
            (-lag, len(takers[name]), name, partition)
            for name, topic in topics.items()
            if takers[name]
            for partition, lag in enumerate(_lags(topic))
        ):
            idlest = min(takers[name], key=lambda heap: heap[0])
            count, to_read, position = idlest[0]
            heapreplace(idlest, (count + 1, to_read - lag, position))
            shares[ordered[position].member_id].setdefault(name, []).append(partition)
        for share in shares.values():
            for partitions in share.values():
                partitions.sort()
        return shares


def _lags(topic: Topic) -> list[int]:
    """Return the lag of each partition, 0 where it is unknown."""
    known = topic.lags[: topic.partition_count]
    return [*known, *[0] * (topic.partition_count - len(known))]
