"""The sticky pass: returns partitions to their previous owners where no load changes.

The balancer decides by the counts of whole classes. So a member may end up without a partition that
it owned, and with another one that it did not own. If that other partition can go to the member
that holds the first one, one partition less moves and all loads stay equal. It may go directly or
through a chain of members that each pass on a partition they did not own. The same holds if two
members whose loads differ by one swap their loads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from partage.assignors.claims import PartitionOwners

PartitionsByTopic: TypeAlias = dict[str, list[int]]

#: The search stops after this many times the number of partitions and subscriptions. Then some
#: partitions move without need; the result is still balanced.
_SEARCH_STEPS_FACTOR = 4
_NOBODY: Mapping[int, int] = {}


class Subscribers(NamedTuple):
    """The subscriptions of the members."""

    #: The existing topics that each member may have.
    wants: Sequence[frozenset[str]]
    #: The sum of the sizes of all subscriptions, with topics that do not exist.
    subscription_count: int


def return_to_owners(
    shares: Sequence[PartitionsByTopic],
    loads: list[int],
    given_up: PartitionOwners,
    borrowed: Mapping[int, PartitionsByTopic],
    subscribers: Subscribers,
    weights: Sequence[float] | None = None,
) -> set[int]:
    """Change the shares in place, as long as it helps.

    Args:
        shares: The partitions of each member.
        loads: Their numbers.
        given_up: The previous owners of the partitions that their owners gave up.
        borrowed: The partitions that members got and did not own before, in the order of members.
        subscribers: The subscriptions.
        weights: One for each member, 1 if None.

    Returns:
        The members that got partitions.
    """
    exchange = _Exchange(shares, loads, given_up, borrowed, subscribers, weights)
    for may_swap_loads in False, True:
        for topic, partition in list(exchange.displaced):
            exchange.return_partition(topic, partition, may_swap_loads=may_swap_loads)
    return exchange.receivers


class _Exchange:
    """The partitions that members could pass to each other."""

    def __init__(
        self,
        shares: Sequence[PartitionsByTopic],
        loads: list[int],
        given_up: PartitionOwners,
        borrowed: Mapping[int, PartitionsByTopic],
        subscribers: Subscribers,
        weights: Sequence[float] | None,
    ) -> None:
        self.shares = shares
        self.loads = loads
        self.given_up = given_up
        self.borrowed = dict(borrowed)
        self.weights = weights
        self.receivers: set[int] = set()
        self.wants = subscribers.wants
        #: The holder of each partition that its previous owner gave up, with plain tuples, see
        #: `TopicPartition`
        self.displaced = {
            (topic, partition): holder
            for holder, of_holder in borrowed.items()
            for topic, partitions in of_holder.items()
            if topic in given_up
            for partition in partitions
            if partition in given_up[topic]
        }
        self._takers: dict[str, list[int]] = {}
        self.effort = _SEARCH_STEPS_FACTOR * (sum(loads) + subscribers.subscription_count)

    def takers(self, topic: str) -> list[int]:
        """Return the subscribers of a topic."""
        takers = self._takers.get(topic)
        if takers is None:
            takers = [member for member, wanted in enumerate(self.wants) if topic in wanted]
            self._takers[topic] = takers
        return takers

    def return_partition(self, topic: str, partition: int, *, may_swap_loads: bool) -> None:
        """Return a displaced partition to its owner, if a chain makes up for it.

        The chain leads from the owner to the holder. If loads may be swapped, it may also begin at
        a member with one partition more than the owner, or end at one with one partition less than
        the holder.
        """
        holder = self.displaced.get((topic, partition))
        if holder is None:
            return  # An earlier chain returned it
        owner = self.given_up[topic][partition]
        sources, targets = [owner], {holder}
        if may_swap_loads and self.effort > 0:
            self.effort -= len(self.shares)
            sources += self._with_load(self.loads[owner] + 1, owner)
            if holder in sources:
                self._pass(holder, owner, topic, partition)
                return
            targets.update(self._with_load(self.loads[holder] - 1, holder))
            targets.difference_update(sources)
        came: dict[int, tuple[int, str]] = {}
        target = self._search(sources, targets, came)
        if target is None:
            return
        self._pass(holder, owner, topic, partition)
        while target in came:
            giver, passed = came[target]
            self._pass(giver, target, passed, self._choose(giver, target, passed))
            target = giver

    def _with_load(self, load: int, like: int) -> list[int]:
        weights = self.weights
        return [
            member
            for member, its in enumerate(self.loads)
            if its == load and (weights is None or weights[member] == weights[like])
        ]

    def _search(
        self, sources: Sequence[int], targets: set[int], came: dict[int, tuple[int, str]]
    ) -> int | None:
        """Return the nearest target that can be reached by passing on partitions that givers do not
        own.
        """
        seen: set[str] = set()
        waiting = deque(sources)
        known = set(sources)
        while waiting and self.effort > 0:
            giver = waiting.popleft()
            for passed in self.borrowed.get(giver, ()):
                if passed in seen:
                    continue
                seen.add(passed)
                takers = self.takers(passed)
                self.effort -= 1 + len(takers)
                for taker in takers:
                    if taker in known:
                        continue
                    known.add(taker)
                    came[taker] = giver, passed
                    if taker in targets:
                        return taker
                    if self.borrowed.get(taker):
                        waiting.append(taker)
        return None

    def _choose(self, giver: int, taker: int, topic: str) -> int:
        """Return a partition that the taker owned, if there is one."""
        of_topic = self.given_up.get(topic, _NOBODY)
        choice = self.borrowed[giver][topic]
        return next((p for p in choice if of_topic.get(p) == taker), choice[-1])

    def _pass(self, giver: int, taker: int, topic: str, partition: int) -> None:
        for share in self.borrowed[giver], self.shares[giver]:
            share[topic].remove(partition)
            if not share[topic]:
                del share[topic]
        self.shares[taker].setdefault(topic, []).append(partition)
        self.receivers.add(taker)
        if self.given_up.get(topic, _NOBODY).get(partition) == taker:
            self.displaced.pop((topic, partition), None)
        else:
            self.borrowed.setdefault(taker, {}).setdefault(topic, []).append(partition)
            if (topic, partition) in self.displaced:
                self.displaced[topic, partition] = taker
        self.loads[giver] -= 1
        self.loads[taker] += 1
