"""The balanced, sticky assignment that all sticky assignors build on.

It works in passes that take linear time apart from sorting:

1. Members keep what they own (`claims`).
2. Decide how many partitions of each topic each class of equal members gets (`balanced_counts`).
3. Within a class, decide which members give up partitions and which ones get them.
4. Return partitions to their previous owners where this costs nothing (`return_pass`).

If all members have the same subscription there is only one class, and passes 2 and 4 are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partage.assignors.balanced_counts import CountBalancer, MemberClass
from partage.assignors.claims import PartitionOwners
from partage.assignors.return_pass import PartitionsByTopic, return_to_owners


def balance(
    subscriptions: Sequence[Iterable[str]],
    holders: PartitionOwners,
    sizes: Mapping[str, int],
    weights: Sequence[float] | None = None,
) -> list[PartitionsByTopic]:
    """Divide all partitions of the topics in ``sizes`` among the members.

    Args:
        subscriptions: The topics of each member. A member is identified by its position here, and
            the
            earlier member takes precedence if all else is equal.
        holders: The current owners.
        sizes: The number of partitions of each topic. Topics without subscribers are left out.
        weights: One for each member, 1 if None. Weight 2 gets twice as many partitions as weight 1.

    Returns:
        The partitions of each member, in the order of ``subscriptions``.
    """
    topics = sorted(sizes)
    classes, class_of = _classes(subscriptions, sizes, weights)
    shares: list[PartitionsByTopic] = [{} for _ in subscriptions]
    kept: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    free: dict[str, list[int]] = {}
    for topic in topics:
        free[topic] = _keep(topic, sizes[topic], holders, classes, class_of, shares, kept[topic])
    levelling = CountBalancer(
        [MemberClass(its.topics, len(its.members), its.weight) for its in classes], kept
    )
    levelling.distribute_free({topic: len(partitions) for topic, partitions in free.items()})
    if len(classes) > 1:
        levelling.balance()
    room = [0] * len(shares)
    for position, its in enumerate(classes):
        its.release(position, shares, levelling, room, free)
    wanting = _divide_free(classes, levelling, shares, free)
    for its, pool in zip(classes, wanting, strict=True):
        its.fill(pool, shares, room)
    if len(classes) > 1:
        return_to_owners(shares, holders, subscriptions, weights)
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
        shares: Sequence[PartitionsByTopic],
        levelling: CountBalancer,
        room: list[int],
        free: Mapping[str, list[int]],
    ) -> None:
        """Take from the members the partitions above their quota, and those that the class gives
        away.
        """
        quota, extras = divmod(levelling.loads[position], len(self.members))
        counts = {m: sum(map(len, shares[m].values())) for m in self.members}
        owing = {}
        for topic in levelling.topics[position]:
            above = levelling.kept[topic].get(position, 0) - levelling.counts[topic].get(
                position, 0
            )
            if above > 0:
                owing[topic] = above
        # Members that own most get the extra partitions. The sort is stable, so precedence breaks
        # ties.
        for rank, member in enumerate(sorted(self.members, key=counts.__getitem__, reverse=True)):
            room[member] = quota + (rank < extras) - counts[member]
            if room[member] < 0:
                room[member] += _give_up(shares[member], -room[member], owing, free)
        if any(owing.values()):
            for member in sorted(self.members, key=room.__getitem__):
                room[member] += _give_up_owed(shares[member], owing, free)

    def fill(
        self,
        pool: Iterable[tuple[str, int]],
        shares: Sequence[PartitionsByTopic],
        room: Sequence[int],
    ) -> None:
        """Deal partitions to members with room, one per round, so that topics are spread."""
        # ``pool`` has plain tuples, see `TopicPartition`
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
    """Return the classes in the order of their first members, and the class of each member."""
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
    holders: PartitionOwners,
    classes: Sequence[_Class],
    class_of: Sequence[_Class | None],
    shares: Sequence[PartitionsByTopic],
    kept: dict[int, int],
) -> list[int]:
    """Leave partitions with owners that may have them; return the free ones."""
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


def _give_up(
    share: PartitionsByTopic, count: int, owing: dict[str, int], free: Mapping[str, list[int]]
) -> int:
    """Give up ``count`` partitions: first those that the class owes, then of the largest topics."""
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


def _give_up_owed(
    share: PartitionsByTopic, owing: dict[str, int], free: Mapping[str, list[int]]
) -> int:
    given = 0
    for topic in [topic for topic in share if owing.get(topic)]:
        while owing[topic] and share[topic]:
            free[topic].append(share[topic].pop())
            owing[topic] -= 1
            given += 1
        if not share[topic]:
            del share[topic]
    return given


def _divide_free(
    classes: Sequence[_Class],
    levelling: CountBalancer,
    shares: Sequence[PartitionsByTopic],
    free: Mapping[str, list[int]],
) -> list[list[tuple[str, int]]]:
    """Divide the free partitions among the classes, up to the number that each class lacks."""
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
        for position in levelling.eligible_classes[topic]:
            lacking = levelling.counts[topic].get(position, 0) - held[position].get(topic, 0)
            pools[position] += [(topic, p) for p in partitions[begin : begin + lacking]]
            begin += lacking
    return pools
