"""The redundant assignor: each partition goes to several members, which keep copies of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.group_view import Assignment, Member, Topic
from partage.model.arguments import check_function, check_int
from partage.model.rebalance_protocol import RebalanceProtocol

#: The number of members with the lowest load that are compared.
_CANDIDATES_MAX = 16


class Redundant(Assignor):
    """Assigns each partition to ``replicas`` members, or to all subscribers if there are fewer.

    No partition is held back: a new replica may start while an old one still reads.

    Args:
        replicas: The number of members for each partition, at least 1.
        copies: A function that returns the partitions that this member has copies of, by topic,
            whether it owns them or not. After a restart, or after some were moved away, the member
            gets those first, in the given order. The function is called in the client's thread,
            each time the member joins.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    name: ClassVar[str] = "redundant"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(
        self, replicas: int = 2, copies: Callable[[], Mapping[str, Collection[int]]] | None = None
    ) -> None:
        check_int("replicas", replicas, least=1)
        if copies is not None:
            check_function("copies", copies, "no arguments")
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
        ordered = sorted(members, key=lambda member: member.sort_key)
        placement = _Placement(ordered, topics, self.replicas)
        placement.keep()
        placement.give_back()
        placement.fill()
        placement.level()
        return placement.shares()


def copies_of(member: Member) -> dict[str, list[int]]:
    """Decode the copies of a member; invalid user data means none."""
    try:
        return msgspec.json.decode(member.user_data, type=dict[str, list[int]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}


class _Placement:
    """The replicas of each partition while they are being decided. Members are positions."""

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
        """Keep replicas with their members; remove surplus ones from the members with the highest
        load.
        """
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
        """Give members the partitions that they have copies of, if this does not increase the
        imbalance.

        It applies if a replica is missing, or if a current holder has more partitions than the
        member would.
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
        """Give each partition its missing replicas, from the members with the lowest load.

        Among these it picks one that shares the fewest partitions with the present holders. So if a
        member is lost, all other members take over some of its partitions, not always the same few.
        """
        shared: Counter[tuple[int, int]] = Counter()
        for name in self.takers:
            idlest = _LeastLoaded(self.takers[name], self.loads)
            for its in self.holders[name]:
                while len(its) < self.wanted[name]:
                    position = idlest.pick_except(its, shared)
                    for other in its:
                        shared[position, other] += 1
                        shared[other, position] += 1
                    its.append(position)
                    self.loads[position] += 1
                    idlest.on_load_changed(position)

    def level(self) -> None:
        """Move replicas while that makes loads more even: first new ones, then owned ones."""
        for may_move_owned in False, True:
            while self._level_once(may_move_owned):
                pass

    def _level_once(self, may_move_owned: bool) -> bool:
        has_moved = False
        for name in self.takers:
            if len(self.takers[name]) <= self.wanted[name]:
                continue  # All members have all partitions
            idlest = _LeastLoaded(self.takers[name], self.loads)
            for partition, its in enumerate(self.holders[name]):
                target = idlest.pick_except(its)
                for source in sorted(its, key=self.loads.__getitem__, reverse=True):
                    if self.loads[source] <= self.loads[target] + 1:
                        break
                    if may_move_owned or (name, partition, source) not in self.owned:
                        its[its.index(source)] = target
                        self.loads[source] -= 1
                        self.loads[target] += 1
                        idlest.on_load_changed(source)
                        idlest.on_load_changed(target)
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


class _LeastLoaded:
    """The least loaded member that may take a topic. It is a heap that skips outdated entries."""

    def __init__(self, takers: Sequence[int], loads: Sequence[int]) -> None:
        self.loads = loads
        self.heap = [(loads[position], position) for position in takers]
        heapify(self.heap)

    def on_load_changed(self, position: int) -> None:
        heappush(self.heap, (self.loads[position], position))

    def pick_except(
        self, excluded: Sequence[int], shared: Mapping[tuple[int, int], int] | None = None
    ) -> int:
        """Return the least loaded member outside ``excluded``; there must be one.

        With ``shared``, compare the first few with equal load and return the one that shares least
        with the excluded members.
        """
        set_aside: list[tuple[int, int]] = []
        found: list[int] = []
        few = 1 if shared is None else _CANDIDATES_MAX
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
