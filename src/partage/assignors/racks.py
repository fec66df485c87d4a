"""Rack matching (KIP-881): members get partitions that have a replica in their own rack.

The replica may be a follower. A consumer with a ``client_rack`` reads from it only if the brokers
name it (KIP-392), see `RackAware`.

Even loads come first: members only exchange partitions, so each has as many as before. Therefore it
works on any assignment, as the last pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from partage.assignors.claims import PartitionOwners
    from partage.assignors.group_view import Member, Topic
    from partage.assignors.return_pass import PartitionsByTopic

# `tuple[str, int]` is a topic and a partition; see `TopicPartition` for the reason.
#: The member that takes a partition, and the one it gives in return, if any.
_Taker: TypeAlias = tuple[int, tuple[str, int] | None]

_NO_RACK: Final = ""
#: The search for chains stops after this many times the number of partitions and subscriptions.
_SEARCH_STEPS_FACTOR: Final = 8


def is_rack_matching_useful(
    member_racks: Collection[str], partition_racks: Sequence[frozenset[str]]
) -> bool:
    """Return False if racks make no difference, for example if every partition is in all racks."""
    everywhere = frozenset[str]().union(*partition_racks)
    if everywhere.isdisjoint(member_racks):
        return False
    return any(racks != everywhere for racks in partition_racks)


def may_match_racks(members: Iterable[Member], topics: Mapping[str, Topic]) -> bool:
    """Return False if `match_racks` would change nothing."""
    racks = [partition for topic in topics.values() for partition in topic.racks]
    return bool(racks) and is_rack_matching_useful(
        {member.rack for member in members if member.rack}, racks
    )


def match_racks(
    shares: Sequence[PartitionsByTopic],
    holders: PartitionOwners,
    members: Sequence[Member],
    topics: Mapping[str, Topic],
) -> None:
    """Exchange partitions between members, in place, until no exchange of two matches more racks.

    Partitions that a member does not own yet go first, because moving them is free. In a
    cooperative group an owned partition takes two generations to move, and the group would never
    become stable.
    """
    _Matching(shares, holders, members, topics).run()


class _Matching:
    """The misplaced partitions, and the members that could have them."""

    def __init__(
        self,
        shares: Sequence[PartitionsByTopic],
        holders: PartitionOwners,
        members: Sequence[Member],
        topics: Mapping[str, Topic],
    ) -> None:
        self.shares = shares
        self.holders = holders
        self.rack_of = [member.rack or _NO_RACK for member in members]
        self.wants = [frozenset(member.topics) for member in members]
        self.racks = {name: topic.racks for name, topic in topics.items()}
        self.loads = [sum(map(len, share.values())) for share in shares]
        #: By rack: its members, and for each of them the partitions from other racks.
        self.present: dict[str, list[int]] = {}
        self.misplaced: dict[str, dict[int, dict[tuple[str, int], None]]] = {}
        #: By the rack of a member and another rack: partitions in both, with their holder at first.
        self.in_both: dict[str, dict[str, deque[tuple[int, str, int]]]] = {}
        self.takers: dict[str, list[int]] = {}
        for member, wanted in enumerate(self.wants):
            for name in sorted(wanted):
                self.takers.setdefault(name, []).append(member)
        self.effort = _SEARCH_STEPS_FACTOR * (sum(self.loads) + sum(map(len, self.takers.values())))
        for holder, share in enumerate(shares):
            rack = self.rack_of[holder]
            self.present.setdefault(rack, []).append(holder)
            self.misplaced.setdefault(rack, {})
            for name, partitions in share.items():
                for partition in partitions:
                    self._note(holder, rack, name, partition)

    def _note(self, holder: int, rack: str, name: str, partition: int) -> None:
        racks = self._racks(name, partition)
        if rack not in racks and rack != _NO_RACK:
            self.misplaced[rack].setdefault(holder, {})[name, partition] = None
            return
        for other in sorted(racks):
            if other != rack:
                found = self.in_both.setdefault(rack, {}).setdefault(other, deque())
                found.append((holder, name, partition))

    def _racks(self, name: str, partition: int) -> frozenset[str]:
        racks = self.racks[name]
        return racks[partition] if partition < len(racks) else frozenset()

    def run(self) -> None:
        for is_owned in False, True:
            for rack in sorted(self.misplaced):
                for holder in sorted(self.misplaced[rack]):
                    for passed in list(self.misplaced[rack].get(holder, ())):
                        if (
                            passed in self.misplaced[rack].get(holder, ())
                            and self._owns(holder, passed) is is_owned
                        ):
                            self._place(holder, rack, passed)

    def _owns(self, member: int, passed: tuple[str, int]) -> bool:
        of_topic = self.holders.get(passed[0])
        return of_topic is not None and of_topic.get(passed[1]) == member

    def _place(self, holder: int, rack: str, passed: tuple[str, int]) -> None:
        """Find a member in one of the partition's racks, and a partition to give in return if
        needed.
        """
        near = [other for other in sorted(self._racks(*passed)) if other in self.present]
        for find in self._unowned, self._swapping_loads, self._owned, self._in_both:
            for other in near:
                if (found := find(passed[0], other, holder, rack)) is not None:
                    taker, returned = found
                    self._pass(holder, rack, passed, taker, other)
                    if returned is not None:
                        self._pass(taker, other, returned, holder, rack)
                    return
        if (found := self._in_both(passed[0], _NO_RACK, holder, rack)) is not None:
            taker, returned = found
            self._pass(holder, rack, passed, taker, _NO_RACK)
            if returned is not None:
                self._pass(taker, _NO_RACK, returned, holder, rack)
            return
        self._place_by_chain(holder, passed, near)

    def _place_by_chain(self, holder: int, passed: tuple[str, int], near: Sequence[str]) -> None:
        """Find a chain: a member in the rack gives a partition that reaches the holder through
        others.

        Each member passes on a partition that is not in its rack, or any if the member has no rack.
        """
        sources = [m for other in near for m in self.present[other] if passed[0] in self.wants[m]]
        self.effort -= len(sources)
        came: dict[int, tuple[int, tuple[str, int]]] = {}
        known = set(sources)
        seen: set[str] = set()
        waiting = deque(sources)
        while waiting and holder not in came and self.effort > 0:
            giver = waiting.popleft()
            for given in self._passable(giver):
                if given[0] in seen:
                    continue
                seen.add(given[0])
                takers = self.takers.get(given[0], ())
                self.effort -= len(takers)
                for taker in takers:
                    if taker not in known:
                        known.add(taker)
                        came[taker] = giver, given
                        waiting.append(taker)
        if holder not in came:
            return
        chain = [(holder, came[holder])]
        while (giver := chain[-1][1][0]) in came:
            chain.append((giver, came[giver]))
        self._pass(holder, self.rack_of[holder], passed, giver, self.rack_of[giver])
        for taker, (giver, given) in chain:
            self._pass(giver, self.rack_of[giver], given, taker, self.rack_of[taker])

    def _passable(self, giver: int) -> Iterable[tuple[str, int]]:
        rack = self.rack_of[giver]
        if rack != _NO_RACK:
            return list(self.misplaced[rack].get(giver, ()))
        return [(name, p) for name, partitions in self.shares[giver].items() for p in partitions]

    def _swapping_loads(self, name: str, other: str, holder: int, rack: str) -> _Taker | None:
        """Find a member with one partition less than the holder: the two loads may be swapped."""
        wanted = self.loads[holder] - 1
        for taker in self.present[other]:
            if self.loads[taker] == wanted and name in self.wants[taker]:
                return taker, None
        return None

    def _unowned(self, name: str, other: str, holder: int, rack: str) -> _Taker | None:
        return self._from_elsewhere(name, other, holder, rack, is_owned=False)

    def _owned(self, name: str, other: str, holder: int, rack: str) -> _Taker | None:
        return self._from_elsewhere(name, other, holder, rack, is_owned=True)

    def _from_elsewhere(
        self, name: str, other: str, holder: int, rack: str, *, is_owned: bool
    ) -> _Taker | None:
        """Find a partition that is not in the taker's rack either, preferably one in the holder's
        rack.
        """
        for taker, has in self.misplaced[other].items():
            if name not in self.wants[taker]:
                continue
            may = [
                back
                for back in has
                if back[0] in self.wants[holder] and self._owns(taker, back) is is_owned
            ]
            if may:
                return taker, next((its for its in may if rack in self._racks(*its)), may[0])
        return None

    def _in_both(self, name: str, other: str, holder: int, rack: str) -> _Taker | None:
        """Find a partition that is in the taker's rack and in the holder's rack."""
        found = self.in_both.get(other, {}).get(rack, deque())
        for _ in range(len(found)):
            taker, its_name, its = found[0]
            if its not in self.shares[taker].get(its_name, ()):
                found.popleft()  # It has moved since
            elif name in self.wants[taker] and its_name in self.wants[holder]:
                return taker, (its_name, its)
            else:
                found.rotate(-1)
        return None

    def _pass(
        self, giver: int, its_rack: str, passed: tuple[str, int], taker: int, other: str
    ) -> None:
        name, partition = passed
        elsewhere = self.misplaced[its_rack].get(giver, {})
        elsewhere.pop(passed, None)
        if not elsewhere:
            self.misplaced[its_rack].pop(giver, None)
        share = self.shares[giver]
        share[name].remove(partition)
        if not share[name]:
            del share[name]
        self.shares[taker].setdefault(name, []).append(partition)
        self.loads[giver] -= 1
        self.loads[taker] += 1
        self._note(taker, other, name, partition)
