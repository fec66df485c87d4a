"""The balanced, sticky assignment that all sticky assignors build on.

It works in passes that take linear time apart from sorting:

1. Members keep what they own. Claims that do not conflict are taken over (`balance_claims`), else
   the owners are decided first (`claims`, `balance_owned`).
2. Decide how many partitions of each topic each class of equal members gets (`balanced_counts`).
3. Within a class, decide which members give up partitions and which ones get them.
4. Return partitions to their previous owners where this costs nothing (`return_pass`).

If all members have the same subscription there is only one class, and passes 2 and 4 are skipped.
The passes after the first one look at the partitions of a member only if it gives up or gets some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from partage.assignors.balanced_counts import CountBalancer, MemberClass
from partage.assignors.claims import PartitionOwners
from partage.assignors.return_pass import PartitionsByTopic, Subscribers, return_to_owners

#: The previous owner of each partition that its owner gave up, by topic.
_GivenUp: TypeAlias = dict[str, dict[int, int]]

#: The position of the class of members without topics: the last element of a list.
_NO_CLASS: Final = -1


class BalancedShares(NamedTuple):
    """The partitions of each member, and the changes."""

    shares: list[PartitionsByTopic]
    #: The members that got partitions. The lists of all other members are sorted.
    receivers: set[int]
    #: The previous owner of each partition that its owner gave up.
    given_up: PartitionOwners


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
    return balance_owned(subscriptions, holders, sizes, weights).shares


def balance_owned(
    subscriptions: Sequence[Iterable[str]],
    holders: PartitionOwners,
    sizes: Mapping[str, int],
    weights: Sequence[float] | None = None,
) -> BalancedShares:
    """Like `balance`, and return the changes too."""
    membership = _Membership.of(subscriptions, sizes, weights)
    return _distribute(membership, _keep_owned(holders, membership, sizes), weights)


def balance_claims(
    subscriptions: Sequence[Iterable[str]],
    claims: Sequence[Mapping[str, Sequence[int]]],
    sizes: Mapping[str, int],
) -> BalancedShares | None:
    """Like `balance_owned`, for the usual case that each partition has one claim at most.

    Args:
        subscriptions: The topics of each member.
        claims: The partitions that each member claims, by topic.
        sizes: The number of partitions of each topic.

    Returns:
        None if several members claim a partition, or a member claims one that does not exist or is
        of a topic to which it does not subscribe.
    """
    membership = _Membership.of(subscriptions, sizes, None)
    kept = _keep_claims(claims, membership, sizes)
    return None if kept is None else _distribute(membership, kept, None)


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
        loads: list[int],
        room: list[int],
        given_up: _GivenUp,
    ) -> None:
        """Take from the members the partitions above their quota, and those that the class gives
        away. Set their loads and their room until then.
        """
        quota, extras = divmod(levelling.loads[position], len(self.members))
        owing = {}
        for topic in levelling.topics[position]:
            above = levelling.kept[topic].get(position, 0) - levelling.counts[topic].get(
                position, 0
            )
            if above > 0:
                owing[topic] = above
        # Members that own most get the extra partitions. The sort is stable, so precedence breaks
        # ties.
        ranked = sorted(self.members, key=loads.__getitem__, reverse=True)
        for rank, member in enumerate(ranked):
            load = quota + (rank < extras)
            its_room = load - loads[member]
            if its_room < 0:
                its_room += _give_up(member, shares[member], -its_room, owing, given_up)
            loads[member], room[member] = load, its_room
        if owing:
            for member in sorted(self.members, key=room.__getitem__):
                room[member] += _give_up_owed(member, shares[member], owing, given_up)
                if not owing:
                    break

    def fill(
        self,
        pool: Iterable[tuple[str, Sequence[int]]],
        shares: Sequence[PartitionsByTopic],
        room: Sequence[int],
    ) -> list[int]:
        """Deal partitions to members with room, one per round, so that topics are spread.

        Returns:
            The members that got partitions.
        """
        receivers = waiting = [member for member in self.members if room[member] > 0]
        turns: list[PartitionsByTopic] = []
        dealt = 0
        while waiting:
            turns += [shares[member] for member in waiting]
            dealt += 1
            waiting = [member for member in waiting if room[member] > dealt]
        turn = iter(turns)
        for topic, partitions in pool:
            for partition, share in zip(partitions, turn, strict=False):
                if topic in share:
                    share[topic].append(partition)
                else:
                    share[topic] = [partition]
        return receivers


class _Membership(NamedTuple):
    """The classes in the order of their first members."""

    classes: list[_Class]
    #: The position of each member's class, or `_NO_CLASS`.
    position_of: list[int]
    #: The sum of the sizes of all subscriptions, with topics that do not exist.
    subscription_count: int

    @classmethod
    def of(
        cls,
        subscriptions: Sequence[Iterable[str]],
        sizes: Mapping[str, int],
        weights: Sequence[float] | None,
    ) -> _Membership:
        """Group the members by the existing topics of their subscriptions, and by weight."""
        # Equal tuples are found faster than equal sets
        by_text: defaultdict[tuple[tuple[str, ...], float], list[int]] = defaultdict(list)
        texts = zip(map(tuple, subscriptions), weights or repeat(1.0), strict=False)
        for member, text in enumerate(texts):
            by_text[text].append(member)
        by_key: dict[tuple[frozenset[str], float], _Class] = {}
        subscription_count = 0
        for (text_topics, weight), members in by_text.items():
            wanted = frozenset(text_topics)
            subscription_count += len(wanted) * len(members)
            if topics := wanted.intersection(sizes):
                key = topics, weight
                by_key.setdefault(key, _Class(topics, weight)).members += members
        position_of = [_NO_CLASS] * len(subscriptions)
        for position, its in enumerate(by_key.values()):
            its.members.sort()
            for member in its.members:
                position_of[member] = position
        return cls(list(by_key.values()), position_of, subscription_count)

    def subscribers(self) -> Subscribers:
        """Return the subscriptions for the sticky pass."""
        wants = [its.topics for its in self.classes]
        wants.append(frozenset())  # `_NO_CLASS`
        return Subscribers(
            [wants[position] for position in self.position_of], self.subscription_count
        )


class _Kept(NamedTuple):
    """The partitions that stay with their owners, and the other ones."""

    shares: list[PartitionsByTopic]
    #: The number of partitions of each share.
    loads: list[int]
    #: The number of partitions that each class keeps, by topic and position of the class.
    counts: dict[str, dict[int, int]]
    #: The other partitions by topic, sorted.
    free: dict[str, list[int]]


def _keep_claims(
    claims: Sequence[Mapping[str, Sequence[int]]],
    membership: _Membership,
    sizes: Mapping[str, int],
) -> _Kept | None:
    """Leave all claimed partitions with the members; return None if that is impossible."""
    shares, loads = [], []
    # Copying and collecting in one loop finds the partitions of a member in the processor's cache
    taken: list[dict[str, list[int]]] = [
        {topic: [] for topic in its.topics} for its in membership.classes
    ]
    collectors = [{topic: its.extend for topic, its in by_topic.items()} for by_topic in taken]
    collectors.append({})  # `_NO_CLASS`
    try:
        for owned, position in zip(claims, membership.position_of, strict=True):
            share: PartitionsByTopic = {}
            collect = collectors[position]
            for topic in sorted(owned):
                if partitions := sorted(owned[topic]):
                    share[topic] = partitions
                    collect[topic](partitions)
            shares.append(share)
            loads.append(sum(map(len, share.values())))
    except KeyError:
        return None  # The member is not subscribed to the topic, or it was deleted
    counts: dict[str, dict[int, int]] = {topic: {} for topic in sorted(sizes)}
    free = {topic: set(range(sizes[topic])) for topic in counts}
    for position, by_topic in enumerate(taken):
        for topic, partitions in by_topic.items():
            if partitions:
                counts[topic][position] = len(partitions)
                free[topic].difference_update(partitions)
    for topic, rest in free.items():
        if len(rest) + sum(counts[topic].values()) != sizes[topic]:
            return None  # A partition has two claims, or does not exist
    return _Kept(shares, loads, counts, {topic: sorted(rest) for topic, rest in free.items()})


def _keep_owned(
    holders: PartitionOwners, membership: _Membership, sizes: Mapping[str, int]
) -> _Kept:
    """Leave partitions with owners that may have them."""
    position_of = membership.position_of
    shares: list[PartitionsByTopic] = [{} for _ in position_of]
    loads = [0] * len(shares)
    counts: dict[str, dict[int, int]] = {topic: {} for topic in sorted(sizes)}
    free: dict[str, list[int]] = {}
    for topic, of_class in counts.items():
        of_topic = holders.get(topic)
        if not of_topic:
            free[topic] = list(range(sizes[topic]))
            continue
        may = [topic in its.topics for its in membership.classes]
        may.append(False)  # `_NO_CLASS`
        rest = free[topic] = []
        for partition in range(sizes[topic]):
            owner = of_topic.get(partition, -1)
            position = position_of[owner] if owner >= 0 else _NO_CLASS
            if not may[position]:
                rest.append(partition)
                continue
            share = shares[owner]
            if topic in share:
                share[topic].append(partition)
            else:
                share[topic] = [partition]
            loads[owner] += 1
            of_class[position] = of_class.get(position, 0) + 1
    return _Kept(shares, loads, counts, free)


def _distribute(
    membership: _Membership, kept: _Kept, weights: Sequence[float] | None
) -> BalancedShares:
    """Run the passes after the first one."""
    classes = membership.classes
    shares, free = kept.shares, kept.free
    levelling = CountBalancer(
        [MemberClass(its.topics, len(its.members), its.weight) for its in classes], kept.counts
    )
    levelling.distribute_free({topic: len(partitions) for topic, partitions in free.items()})
    if len(classes) > 1:
        levelling.balance()
    room = [0] * len(shares)
    given_up: _GivenUp = {}
    #: The number of partitions that each class has after this, by topic.
    held: list[dict[str, int]] = []
    for position, its in enumerate(classes):
        of_class = {
            topic: kept.counts[topic].get(position, 0) + len(given_up.get(topic, ()))
            for topic in its.topics
        }
        its.release(position, shares, levelling, kept.loads, room, given_up)
        for topic in of_class:
            of_class[topic] -= len(given_up.get(topic, ()))
        held.append(of_class)
    for topic, of_topic in given_up.items():
        free[topic] = sorted([*free[topic], *of_topic])
    receivers: set[int] = set()
    for its, pool in zip(classes, _divide_free(levelling, held, free), strict=True):
        receivers.update(its.fill(pool, shares, room))
    if len(classes) > 1 and given_up:
        receivers |= return_to_owners(
            shares,
            kept.loads,
            given_up,
            _borrowed(shares, receivers, given_up, free),
            membership.subscribers(),
            weights,
        )
    return BalancedShares(shares, receivers, given_up)


def _give_up(
    member: int,
    share: PartitionsByTopic,
    count: int,
    owing: dict[str, int],
    given_up: _GivenUp,
) -> int:
    """Give up ``count`` partitions: first those that the class owes, then of the largest topics."""
    for _ in range(count):
        owed = [topic for topic in share if topic in owing]
        topic = max(owed or share, key=lambda topic: (len(share[topic]), topic))
        _give_up_last(member, share, topic, given_up)
        if owed:
            _reduce(owing, topic)
    return count


def _give_up_owed(
    member: int, share: PartitionsByTopic, owing: dict[str, int], given_up: _GivenUp
) -> int:
    given = 0
    for topic in [topic for topic in share if topic in owing]:
        while topic in owing and topic in share:
            _give_up_last(member, share, topic, given_up)
            _reduce(owing, topic)
            given += 1
    return given


def _give_up_last(member: int, share: PartitionsByTopic, topic: str, given_up: _GivenUp) -> None:
    given_up.setdefault(topic, {})[share[topic].pop()] = member
    if not share[topic]:
        del share[topic]


def _reduce(owing: dict[str, int], topic: str) -> None:
    owing[topic] -= 1
    if not owing[topic]:
        del owing[topic]


def _divide_free(
    levelling: CountBalancer,
    held: Sequence[Mapping[str, int]],
    free: Mapping[str, Sequence[int]],
) -> list[list[tuple[str, Sequence[int]]]]:
    """Divide the free partitions among the classes, up to the number that each class lacks."""
    pools: list[list[tuple[str, Sequence[int]]]] = [[] for _ in held]
    for topic, partitions in free.items():
        begin = 0
        for position in levelling.eligible_classes[topic]:
            end = begin + levelling.counts[topic].get(position, 0) - held[position][topic]
            pools[position].append((topic, partitions[begin:end]))
            begin = end
    return pools


def _borrowed(
    shares: Sequence[PartitionsByTopic],
    receivers: Iterable[int],
    given_up: PartitionOwners,
    free: Mapping[str, Iterable[int]],
) -> dict[int, PartitionsByTopic]:
    """Return the partitions that members got and did not own before."""
    divided = {topic: frozenset(partitions) for topic, partitions in free.items()}
    borrowed: dict[int, PartitionsByTopic] = {}
    for member in sorted(receivers):
        of_member: PartitionsByTopic = {}
        for topic, partitions in shares[member].items():
            owners = given_up.get(topic, {})
            if others := [p for p in partitions if p in divided[topic] and owners.get(p) != member]:
                of_member[topic] = others
        borrowed[member] = of_member
    return borrowed
