"""The co-partitioned assignor: equal partition numbers of several topics go to one member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.claims import DISPUTED, PartitionOwners
from partage.assignors.cooperation import hold_back_owned, resolve_owners
from partage.assignors.group_view import Assignment, Member, Topic
from partage.assignors.sticky import by_member_id
from partage.assignors.sticky_balancer import balance
from partage.model.arguments import InvalidArgumentError
from partage.model.rebalance_protocol import RebalanceProtocol


class CoPartitioningError(Exception):
    """Raised if topics that must be co-partitioned cannot be."""


class CoPartitioned(Assignor):
    """Assigns partition n of all ``topics`` to one member, which subscribes to all of them.

    Topics that are not named are divided evenly by themselves. Without names, topics with equal
    partition counts and equal subscribers are co-partitioned. Joins of keyed topics need this.
    """

    name: ClassVar[str] = "co-partitioned"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, *topics: str) -> None:
        if not all(isinstance(topic, str) for topic in topics):
            raise InvalidArgumentError(
                "CoPartitioned takes names of topics one by one: CoPartitioned('clicks', 'orders')"
            )
        self.topics = topics

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """See `Assignor.assign`.

        Raises:
            CoPartitioningError: The named topics have different partition counts, or no member
                subscribes
                to all of them.
        """
        ordered = sorted(members, key=lambda member: member.sort_key)
        holders = resolve_owners(ordered)
        shares: list[dict[str, list[int]]] = [{} for _ in ordered]
        for together in self._groups(ordered, topics):
            # The member with the lowest load comes first, so it gets the remainder of the division.
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
        return hold_back_owned(ordered, by_member_id(ordered, shares), holders)

    def _groups(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> list[tuple[str, ...]]:
        """Return the groups of topics to divide alike, the named topics first."""
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
        _check_co_partitioned(named, members, topics)
        return [*([named] if named else []), *map(tuple, groups.values())]


def _check_co_partitioned(
    named: Sequence[str], members: Sequence[Member], topics: Mapping[str, Topic]
) -> None:
    counts = {name: topics[name].partition_count for name in named}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise CoPartitioningError(
            f"co-partitioned topics must have equal partition counts: {listed}"
        )
    if named and not any(set(named).issubset(member.topics) for member in members):
        raise CoPartitioningError(f"no member subscribes to all of {', '.join(named)}")


def _owners_of_all(
    together: Iterable[str], holders: PartitionOwners, rank_of: Mapping[int, int]
) -> dict[int, int]:
    """Return, by partition, the member that owns it in most of the topics."""
    found: dict[int, Counter[int]] = {}
    for topic in together:
        for partition, holder in holders.get(topic, {}).items():
            if holder != DISPUTED:
                found.setdefault(partition, Counter())[rank_of[holder]] += 1
    return {
        partition: min(its, key=lambda holder: (-its[holder], holder))
        for partition, its in found.items()
    }
