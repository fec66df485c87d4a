"""Redundant: each partition to several members, each of which keeps a copy of what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar

import msgspec

from partage.assignors.base import Assignment, Assignor, Member, RebalanceProtocol, Topic

#: So many of those who have equally little are looked at.
_FEW = 16


class Redundant(Assignor):
    """``replicas`` members for each partition, or all subscribers if they are fewer.

    Nothing is held back: that a new replica begins while an old one still reads is as it should be.
    ``copies`` gives what this member has copies of, by topic, whether it owns the partitions or
    not: after a restart, or after some were moved away, it gets those first, in the order given. It
    is called from the client's thread, each time the member joins.
    """

    name: ClassVar[str] = "redundant"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(
        self, replicas: int = 2, copies: Callable[[], Mapping[str, Collection[int]]] | None = None
    ) -> None:
        if replicas < 1:
            raise ValueError(f"replicas must be at least 1, not {replicas}")
        self.replicas = replicas
        self._copies = copies

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        if self._copies is None:
            return None
        wanted = {topic: list(its) for topic, its in self._copies().items() if topic in topics}
        return msgspec.json.encode(wanted)

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.order)
        placement = _Placement(ordered, topics, self.replicas)
        placement.keep()
        placement.give_back()
        placement.fill()
        placement.level()
        return placement.shares()


def copies_of(member: Member) -> dict[str, list[int]]:
    """What a member says it has copies of; nothing if it says nothing sensible."""
    try:
        return msgspec.json.decode(member.user_data, type=dict[str, list[int]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}


class _Placement:
    """Who has a replica of what, while it is being decided; members are positions."""

    def __init__(
        self, members: Sequence[Member], topics: Mapping[str, Topic], replicas: int
    ) -> None:
        self.members = members
        self.loads = [0] * len(members)
        self.takers: dict[str, list[int]] = {name: [] for name in sorted(topics)}
        for position, member in enumerate(members):
            for name in frozenset(member.topics).intersection(topics):
                self.takers[name].append(position)
        self.wanted = {name: min(replicas, len(its)) for name, its in self.takers.items()}
        self.holders: dict[str, list[list[int]]] = {
            name: [[] for _ in range(topics[name].partition_count)] for name in self.takers
        }
        self.owned: set[tuple[str, int, int]] = set()

    def keep(self) -> None:
        """Leave replicas where they are; if there are too many, with those who have least."""
        for position, member in enumerate(self.members):
            for name in frozenset(member.topics).intersection(self.holders):
                of_topic = self.holders[name]
                for partition in dict.fromkeys(member.owned.get(name, ())):
                    if 0 <= partition < len(of_topic):
                        of_topic[partition].append(position)
                        self.owned.add((name, partition, position))
                        self.loads[position] += 1
        for name, _, its in self._partitions():
            while len(its) > self.wanted[name]:
                most = max(its, key=lambda position: (self.loads[position], position))
                its.remove(most)
                self.loads[most] -= 1

    def give_back(self) -> None:
        """Let members have what they have copies of already, where that does not burden them.

        Where a replica is lacking, or one of its holders has more than the member would have.
        """
        for position, member in enumerate(self.members):
            for name, partitions in copies_of(member).items():
                of_topic = self.holders.get(name, []) if name in member.topics else []
                for partition in dict.fromkeys(partitions):
                    if 0 <= partition < len(of_topic) and position not in of_topic[partition]:
                        self._give_back(name, partition, position)

    def _give_back(self, name: str, partition: int, position: int) -> None:
        its = self.holders[name][partition]
        if len(its) >= self.wanted[name]:
            most = max(its, key=self.loads.__getitem__)
            if self.loads[most] <= self.loads[position] + 1:
                return
            its.remove(most)
            self.loads[most] -= 1
        its.append(position)
        self.owned.add((name, partition, position))
        self.loads[position] += 1

    def fill(self) -> None:
        """Give each partition the replicas that it lacks, to those who have least.

        Of these to one that shares least with those who have it already: when a member is lost,
        all others are to take over some of what it had, and not always the same few.
        """
        shared: Counter[tuple[int, int]] = Counter()
        for name in self.takers:
            idlest = _Idlest(self.takers[name], self.loads)
            for its in self.holders[name]:
                while len(its) < self.wanted[name]:
                    position = idlest.besides(its, shared)
                    for other in its:
                        shared[position, other] += 1
                        shared[other, position] += 1
                    its.append(position)
                    self.loads[position] += 1
                    idlest.changed(position)

    def level(self) -> None:
        """Move replicas while a move makes loads more even: new ones first, then owned ones."""
        for may_move_owned in False, True:
            while self._level_once(may_move_owned):
                pass

    def _level_once(self, may_move_owned: bool) -> bool:
        has_moved = False
        for name in self.takers:
            if len(self.takers[name]) <= self.wanted[name]:
                continue  # all have all of it
            idlest = _Idlest(self.takers[name], self.loads)
            for partition, its in enumerate(self.holders[name]):
                target = idlest.besides(its)
                for source in sorted(its, key=self.loads.__getitem__, reverse=True):
                    if self.loads[source] <= self.loads[target] + 1:
                        break
                    if may_move_owned or (name, partition, source) not in self.owned:
                        its[its.index(source)] = target
                        self.loads[source] -= 1
                        self.loads[target] += 1
                        idlest.changed(source)
                        idlest.changed(target)
                        has_moved = True
                        break
        return has_moved

    def shares(self) -> dict[str, dict[str, list[int]]]:
        shares: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in self.members}
        for name, partition, its in self._partitions():
            for position in its:
                mine = shares[self.members[position].member_id]
                mine.setdefault(name, []).append(partition)
        return shares

    def _partitions(self) -> Iterator[tuple[str, int, list[int]]]:
        for name, of_topic in self.holders.items():
            for partition, its in enumerate(of_topic):
                yield name, partition, its


class _Idlest:
    """Of those who may take a topic, who has least; a heap that notices outdated entries."""

    def __init__(self, takers: Sequence[int], loads: Sequence[int]) -> None:
        self.loads = loads
        self.heap = [(loads[position], position) for position in takers]
        heapify(self.heap)

    def changed(self, position: int) -> None:
        heappush(self.heap, (self.loads[position], position))

    def besides(
        self, excluded: Sequence[int], shared: Mapping[tuple[int, int], int] | None = None
    ) -> int:
        """Who has least, of those who are not ``excluded``; there is somebody.

        If several have, the first, or of the first few who has least ``shared`` with the excluded.
        """
        set_aside: list[tuple[int, int]] = []
        found: list[int] = []
        few = 1 if shared is None else _FEW
        while self.heap and len(found) < few:
            entry = load, position = heappop(self.heap)
            if load != self.loads[position] or position in found:
                continue
            if position not in excluded:
                if found and load > self.loads[found[0]]:
                    heappush(self.heap, entry)
                    break
                found.append(position)
            set_aside.append(entry)
        for entry in set_aside:
            heappush(self.heap, entry)
        if shared is None:
            return found[0]
        return min(found, key=lambda its: sum(shared[its, other] for other in excluded))
