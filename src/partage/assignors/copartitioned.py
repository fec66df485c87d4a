"""Co-partitioned: the same partition numbers of several topics to one member, as joins need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from partage.assignors.balancing import balance
from partage.assignors.base import Assignment, Assignor, Member, RebalanceProtocol, Topic
from partage.assignors.claims import DISPUTED, Holders
from partage.assignors.cooperation import owners, withhold
from partage.assignors.sticky import by_id


class NotCoPartitioned(Exception):
    """Topics that are to be read together cannot be."""


class CoPartitioned(Assignor):
    """Partition n of all ``topics`` goes to one member, which subscribes to all of them.

    Topics that are not named are shared out evenly by themselves. Without names, topics with the
    same number of partitions and the same subscribers belong together.
    """

    name: ClassVar[str] = "co-partitioned"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """See `Assignor.assign`.

        Raises:
            NotCoPartitioned: the named topics differ in their numbers of partitions, or nobody
                subscribes to all of them.
        """
        ordered = sorted(members, key=lambda member: member.order)
        holders = owners(ordered)
        shares: list[dict[str, list[int]]] = [{} for _ in ordered]
        for together in self._groups(ordered, topics):
            # Who has least so far comes first, and so gets what does not divide evenly.
            loads = [sum(map(len, share.values())) for share in shares]
            ranked = sorted(range(len(ordered)), key=loads.__getitem__)
            rank_of = {member: rank for rank, member in enumerate(ranked)}
            all_of_them = frozenset(together)
            units = balance(
                [("*",) if all_of_them.issubset(ordered[m].topics) else () for m in ranked],
                {"*": _owners_of_all(together, holders, rank_of)},
                {"*": topics[together[0]].partition_count},
            )
            for member, unit in zip(ranked, units, strict=True):
                for topic in together if unit else ():
                    shares[member][topic] = sorted(unit["*"])
        return withhold(ordered, by_id(ordered, shares), holders)

    def _groups(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> list[tuple[str, ...]]:
        """Topics to be divided alike, those that are named first."""
        subscribers: dict[str, list[str]] = {}
        for member in members:
            for name in frozenset(member.topics).intersection(topics):
                subscribers.setdefault(name, []).append(member.member_id)
        named = tuple(sorted(name for name in self.topics if name in subscribers))
        groups: dict[object, list[str]] = {}
        for name in sorted(subscribers):
            count = topics[name].partition_count
            if name not in named:
                key = name if self.topics else (count, tuple(subscribers[name]))
                groups.setdefault(key, []).append(name)
        _check_together(named, members, topics)
        return [*([named] if named else []), *map(tuple, groups.values())]


def _check_together(
    named: Sequence[str], members: Sequence[Member], topics: Mapping[str, Topic]
) -> None:
    counts = {name: topics[name].partition_count for name in named}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise NotCoPartitioned(f"co-partitioned topics must have equal partition counts: {told}")
    if named and not any(set(named).issubset(member.topics) for member in members):
        raise NotCoPartitioned(f"no member subscribes to all of {', '.join(named)}")


def _owners_of_all(
    together: Iterable[str], holders: Holders, rank_of: Mapping[int, int]
) -> dict[int, int]:
    """Who owns most of what belongs together; it is to have all of it."""
    found: dict[int, Counter[int]] = {}
    for topic in together:
        for partition, holder in holders.get(topic, {}).items():
            if holder != DISPUTED:
                found.setdefault(partition, Counter())[rank_of[holder]] += 1
    return {
        partition: min(its, key=lambda holder: (-its[holder], holder))
        for partition, its in found.items()
    }
