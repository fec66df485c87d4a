"""Balanced counts: the number of partitions of each topic for each class of members.

Members with the same subscription (and weight) form a **class**. Whatever one of them may have,
each of them may have. So it is enough to decide counts for each topic and class. This costs topics
times classes, not partitions times members. `sticky_balancer` then picks the partitions of each
member.

A class of ``size`` members of weight ``w`` spreads its ``load`` partitions evenly. The next
partition brings one of its members from k to k + 1, at a cost of (k + 1/2) / w. For weight 1 this
orders members by their number of partitions. In general it divides partitions in proportion to the
weights (the method of Sainte-Laguë). A chain of moves passes one partition from class to class,
topic by topic. Loads are balanced when no chain leads from a class whose last partition costs more
to one whose next partition costs less. That is the optimum for such costs: no other assignment is
more even (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing,
2006).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple


class MemberClass(NamedTuple):
    """Members with the same subscription and weight."""

    topics: frozenset[str]
    size: int
    weight: float


class CountBalancer:
    """Counts of partitions by topic and class, while they are being balanced.

    ``kept`` is the number of partitions of each topic that each class owns already. Those are the
    last ones to move.
    """

    def __init__(
        self, classes: Sequence[MemberClass], kept: Mapping[str, Mapping[int, int]]
    ) -> None:
        self.classes = classes
        self.kept = kept
        self.counts = {topic: dict(of_topic) for topic, of_topic in kept.items()}
        self.loads = [0] * len(classes)
        for of_topic in kept.values():
            for position, count in of_topic.items():
                self.loads[position] += count
        self.eligible_classes: dict[str, list[int]] = {topic: [] for topic in kept}
        for position, its in enumerate(classes):
            for topic in its.topics:
                self.eligible_classes[topic].append(position)
        self.topics = [sorted(its.topics) for its in classes]

    def next_cost(self, position: int) -> float:
        """Return the cost of one more partition for a class."""
        its = self.classes[position]
        return (self.loads[position] // its.size + 0.5) / its.weight

    def last_cost(self, position: int) -> float:
        """Return the cost that a class saves with one partition less."""
        its = self.classes[position]
        return ((self.loads[position] - 1) // its.size + 0.5) / its.weight

    def room(self, position: int) -> int:
        """Return the number of partitions that a class takes at the same cost."""
        size = self.classes[position].size
        return size - self.loads[position] % size

    def surplus(self, position: int) -> int:
        """Return the number of partitions that a class gives up for the same saving."""
        return (self.loads[position] - 1) % self.classes[position].size + 1

    def distribute_free(self, free: Mapping[str, int]) -> None:
        """Distribute the partitions without owner; topics with few subscribers come first."""
        for topic in sorted(free, key=lambda topic: (len(self.eligible_classes[topic]), topic)):
            takers, left, counts = self.eligible_classes[topic], free[topic], self.counts[topic]
            if not takers:
                continue
            prices = [(self.next_cost(position), position) for position in takers]
            heapify(prices)
            while left:
                position = prices[0][1]
                taken = min(left, self.room(position))
                left -= taken
                counts[position] = counts.get(position, 0) + taken
                self.loads[position] += taken
                heapreplace(prices, (self.next_cost(position), position))

    def balance(self) -> None:
        """Move partitions along chains until no chain improves the balance.

        The classes with the highest cost give first. If no chain leads from them to a class of
        lower cost, the classes within their reach are on no other useful chain either, and all of
        these are done.
        """
        waiting = [(-self.last_cost(c), c) for c in range(len(self.classes)) if self.loads[c]]
        heapify(waiting)
        done: set[int] = set()
        # A dictionary as an ordered set. A class that several moves raised to the same load has
        # several equal entries in ``waiting``, and must be a source once only.
        dearest: dict[int, None] = {}
        while waiting or dearest:
            if not dearest:
                highest = -waiting[0][0]
                while waiting and -waiting[0][0] == highest:
                    position = heappop(waiting)[1]
                    if position not in done and self.loads[position]:
                        if self.last_cost(position) == highest:
                            dearest[position] = None
                        else:  # The cost has changed since this entry was pushed
                            heappush(waiting, (-self.last_cost(position), position))
                continue
            chain, reached = self._cheapest_chain(dearest, highest, done)
            if not chain:
                done |= reached
                dearest.clear()
                continue
            self._move(chain)
            source, target = chain[0][0], chain[-1][2]
            heappush(waiting, (-self.last_cost(target), target))
            if not self.loads[source] or self.last_cost(source) != highest:
                del dearest[source]
                if self.loads[source]:
                    heappush(waiting, (-self.last_cost(source), source))

    def _unowned(self, topic: str, position: int) -> int:
        """Return how many partitions of a topic a class has but does not own yet: moving them is
        free.
        """
        return self.counts[topic].get(position, 0) - self.kept[topic].get(position, 0)

    def _cheapest_chain(
        self, sources: Iterable[int], saving: float, done: set[int]
    ) -> tuple[list[tuple[int, str, int]], set[int]]:
        """Return the chain that moves fewest owned partitions, as (from, topic, to), and the
        reached classes.

        This is a search in the order of cost, where each step costs 0 or 1.
        """
        cost = dict.fromkeys(sources, 0)
        came: dict[int, tuple[int, str]] = {}
        seen: dict[str, int] = {}
        queue = deque((0, source) for source in cost)
        best, best_price = -1, saving
        while queue:
            so_far, position = queue.popleft()
            if so_far > cost[position]:
                continue
            if best >= 0 and so_far > cost[best]:
                break
            if self.next_cost(position) < best_price:
                best, best_price = position, self.next_cost(position)
            for topic in self.topics[position]:
                if not self.counts[topic].get(position):
                    continue
                step = so_far + (self._unowned(topic, position) <= 0)
                if seen.get(topic, step + 1) <= step:
                    continue
                seen[topic] = step
                for taker in self.eligible_classes[topic]:
                    if taker not in done and cost.get(taker, step + 1) > step:
                        cost[taker] = step
                        came[taker] = position, topic
                        if step == so_far:
                            queue.appendleft((step, taker))
                        else:
                            queue.append((step, taker))
        chain: list[tuple[int, str, int]] = []
        if best >= 0:
            target = best
            while target in came:
                position, topic = came[target]
                chain.append((position, topic, target))
                target = position
            chain.reverse()
        return chain, set(cost)

    def _move(self, chain: Sequence[tuple[int, str, int]]) -> None:
        """Move as many partitions along a chain as improve the balance equally."""
        source, target = chain[0][0], chain[-1][2]
        amount = min(self.surplus(source), self.room(target))
        for position, topic, _ in chain:
            unowned = self._unowned(topic, position)
            amount = min(amount, unowned if unowned > 0 else self.counts[topic][position])
        for position, topic, taker in chain:
            counts = self.counts[topic]
            counts[position] -= amount
            counts[taker] = counts.get(taker, 0) + amount
        self.loads[source] -= amount
        self.loads[target] += amount
