"""Sharing evenly, and leaving as much as can be where it is: what all sticky assignors build on.

In passes that are linear but for sorting: which member keeps what (`claims`); how many partitions
of each topic each class of equal members gets (`levelling`); within a class, who gives up and who
gets; and what can go back to its owner after all (`returning`). Where all members subscribe alike
there is one class, and only the first and the third have anything to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partage.assignors.claims import Holders
from partage.assignors.levelling import Levelling, MemberClass
from partage.assignors.returning import Share, bring_back


def balance(
    subscriptions: Sequence[Iterable[str]],
    holders: Holders,
    sizes: Mapping[str, int],
    weights: Sequence[float] | None = None,
) -> list[Share]:
    """Share out all partitions of the topics in ``sizes``.

    Members are positions in ``subscriptions``; where it makes no other difference the earlier one
    has precedence. A member of weight 2 gets twice as much as one of weight 1. Topics that nobody
    subscribes to are left out.
    """
    topics = sorted(sizes)
    classes, class_of = _classes(subscriptions, sizes, weights)
    shares: list[Share] = [{} for _ in subscriptions]
    kept: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    free: dict[str, list[int]] = {}
    for topic in topics:
        free[topic] = _keep(topic, sizes[topic], holders, classes, class_of, shares, kept[topic])
    levelling = Levelling(
        [MemberClass(its.topics, len(its.members), its.weight) for its in classes], kept
    )
    levelling.pour({topic: len(partitions) for topic, partitions in free.items()})
    if len(classes) > 1:
        levelling.level()
    room = [0] * len(shares)
    for position, its in enumerate(classes):
        its.release(position, shares, levelling, room, free)
    wanting = _deal(classes, levelling, shares, free)
    for its, pool in zip(classes, wanting, strict=True):
        its.fill(pool, shares, room)
    if len(classes) > 1:
        bring_back(shares, holders, subscriptions, weights)
    return shares


class _Class:
    """Members with the same subscription and weight."""

    def __init__(self, topics: frozenset[str], weight: float) -> None:
        self.topics = topics
        self.weight = weight
        self.members: list[int] = []

    def release(
        self,
        position: int,
        shares: Sequence[Share],
        levelling: Levelling,
        room: list[int],
        free: Mapping[str, list[int]],
    ) -> None:
        """Take from members what is above their quota, and what the class is to give away."""
        quota, extras = divmod(levelling.loads[position], len(self.members))
        counts = {m: sum(map(len, shares[m].values())) for m in self.members}
        owing = {}
        for topic in levelling.topics[position]:
            above = levelling.kept[topic].get(position, 0) - levelling.counts[topic].get(
                position, 0
            )
            if above > 0:
                owing[topic] = above
        # Those who own most get the extra ones: sorting is stable, so that others go by precedence.
        for rank, member in enumerate(sorted(self.members, key=counts.__getitem__, reverse=True)):
            room[member] = quota + (rank < extras) - counts[member]
            if room[member] < 0:
                room[member] += _give(shares[member], -room[member], owing, free)
        if any(owing.values()):
            for member in sorted(self.members, key=room.__getitem__):
                room[member] += _give_owed(shares[member], owing, free)

    def fill(
        self, pool: Iterable[tuple[str, int]], shares: Sequence[Share], room: Sequence[int]
    ) -> None:
        """Deal partitions to members with room, a round at a time, so that topics spread."""
        waiting = [member for member in self.members if room[member] > 0]
        turns: list[int] = []
        dealt = 0
        while waiting:
            turns += waiting
            dealt += 1
            waiting = [member for member in waiting if room[member] > dealt]
        for (topic, partition), member in zip(pool, turns, strict=True):
            share = shares[member]
            if topic in share:
                share[topic].append(partition)
            else:
                share[topic] = [partition]


def _classes(
    subscriptions: Sequence[Iterable[str]],
    sizes: Mapping[str, int],
    weights: Sequence[float] | None,
) -> tuple[list[_Class], list[_Class | None]]:
    """The classes in the order of their first members, and each member's own."""
    by_key: dict[tuple[frozenset[str], float], _Class] = {}
    by_text: dict[tuple[str, ...], frozenset[str]] = {}
    class_of: list[_Class | None] = []
    for member, subscription in enumerate(subscriptions):
        text = tuple(subscription)
        topics = by_text.get(text)
        if topics is None:
            topics = by_text[text] = frozenset(text).intersection(sizes)
        if not topics:
            class_of.append(None)
            continue
        key = topics, 1.0 if weights is None else weights[member]
        its = by_key.get(key)
        if its is None:
            its = by_key[key] = _Class(*key)
        its.members.append(member)
        class_of.append(its)
    return list(by_key.values()), class_of


def _keep(
    topic: str,
    size: int,
    holders: Holders,
    classes: Sequence[_Class],
    class_of: Sequence[_Class | None],
    shares: Sequence[Share],
    kept: dict[int, int],
) -> list[int]:
    """Leave with their owners the partitions that these may have; the others are free."""
    of_topic = holders.get(topic)
    if not of_topic:
        return list(range(size))
    position_of = {id(its): position for position, its in enumerate(classes)}
    may = [its is not None and topic in its.topics for its in class_of]
    free = []
    for partition in range(size):
        owner = of_topic.get(partition, -1)
        if owner < 0 or not may[owner]:
            free.append(partition)
            continue
        share = shares[owner]
        if topic in share:
            share[topic].append(partition)
        else:
            share[topic] = [partition]
        position = position_of[id(class_of[owner])]
        kept[position] = kept.get(position, 0) + 1
    return free


def _give(share: Share, count: int, owing: dict[str, int], free: Mapping[str, list[int]]) -> int:
    """Give up ``count`` partitions, of what the class owes first, then of the largest topics."""
    given = 0
    while given < count:
        owed = [topic for topic in share if owing.get(topic)]
        topic = max(owed or share, key=lambda topic: (len(share[topic]), topic))
        free[topic].append(share[topic].pop())
        if owed:
            owing[topic] -= 1
        if not share[topic]:
            del share[topic]
        given += 1
    return given


def _give_owed(share: Share, owing: dict[str, int], free: Mapping[str, list[int]]) -> int:
    given = 0
    for topic in [topic for topic in share if owing.get(topic)]:
        while owing[topic] and share[topic]:
            free[topic].append(share[topic].pop())
            owing[topic] -= 1
            given += 1
        if not share[topic]:
            del share[topic]
    return given


def _deal(
    classes: Sequence[_Class],
    levelling: Levelling,
    shares: Sequence[Share],
    free: Mapping[str, list[int]],
) -> list[list[tuple[str, int]]]:
    """Divide what is free among the classes, each as much as it lacks."""
    held: list[dict[str, int]] = []
    for its in classes:
        of_class: dict[str, int] = {}
        for member in its.members:
            for topic, partitions in shares[member].items():
                of_class[topic] = of_class.get(topic, 0) + len(partitions)
        held.append(of_class)
    pools: list[list[tuple[str, int]]] = [[] for _ in classes]
    for topic, partitions in free.items():
        partitions.sort()
        begin = 0
        for position in levelling.takers[topic]:
            lacking = levelling.counts[topic].get(position, 0) - held[position].get(topic, 0)
            pools[position] += [(topic, p) for p in partitions[begin : begin + lacking]]
            begin += lacking
    return pools
