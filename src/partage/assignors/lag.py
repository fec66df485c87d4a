"""Lag-based: who falls behind is helped. Records yet to be read are spread evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import ClassVar

from partage.assignors.base import Assignment, Assignor, Member, Topic


class LagBased(Assignor):
    """The partitions with most to read first, each to the member with fewest partitions so far.

    Of those with equally few, to the one with least to read. Numbers of partitions stay even, for
    lags pass, and an assignment may outlast them. What a member had does not count, and so it is
    eager: lags change all the time, and with them everything.
    """

    name: ClassVar[str] = "lag-based"
    needs_lags: ClassVar[bool] = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.order)
        alike: dict[frozenset[str], list[tuple[int, int, int]]] = {}
        for position, member in enumerate(ordered):
            wants = frozenset(member.topics).intersection(topics)
            alike.setdefault(wants, []).append((0, 0, position))
        for heap in alike.values():
            heapify(heap)
        takers = {name: [heap for wants, heap in alike.items() if name in wants] for name in topics}
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in ordered}
        # Topics with few takers first among equals: others can make up for what they get.
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
    """A lag a partition; nothing to read where it is not known."""
    known = topic.lags[: topic.partition_count]
    return [*known, *[0] * (topic.partition_count - len(known))]
