"""How many partitions of each topic go to each class of members, so that loads come out level.

Members with the same subscription (and weight) are a **class**: what one of them may have, any of
them may. So it is enough to decide counts a topic and class, which costs topics times classes and
not partitions times members; who in a class gets which partition comes after (`balancing`).

A class of ``size`` members of weight ``w`` that holds ``load`` partitions spreads them evenly. The
next partition brings one of its members from k to k + 1, at a price of (k + 1/2) / w, which for
weight 1 orders members by how many they have, and in general divides partitions in proportion to
weights (the method of Sainte-Laguë). Loads are level when no chain of moves, of topic after topic
from class to class, takes a partition from where the last one costs more to where the next one
costs less. That is the optimum for such prices: no other assignment is more even (Harvey, Ladner,
Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing, 2006).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple


class MemberClass(NamedTuple):
    """Members that may have the same, and should have equally much of it."""

    topics: frozenset[str]
    size: int
    weight: float


class Levelling:
    """Counts of partitions, by topic and class, while they are being made level.

    ``kept`` is how many partitions of each topic the members of each class own already; of
    partitions that move, those come last.
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
        self.takers: dict[str, list[int]] = {topic: [] for topic in kept}
        for position, its in enumerate(classes):
            for topic in its.topics:
                self.takers[topic].append(position)
        self.topics = [sorted(its.topics) for its in classes]

    def price(self, position: int) -> float:
        """What the next partition costs a class."""
        its = self.classes[position]
        return (self.loads[position] // its.size + 0.5) / its.weight

    def saving(self, position: int) -> float:
        """What a class would save by one partition less."""
        its = self.classes[position]
        return ((self.loads[position] - 1) // its.size + 0.5) / its.weight

    def room(self, position: int) -> int:
        """How many partitions a class takes at the same price."""
        size = self.classes[position].size
        return size - self.loads[position] % size

    def surplus(self, position: int) -> int:
        """How many partitions a class gives up for the same saving."""
        return (self.loads[position] - 1) % self.classes[position].size + 1

    def pour(self, free: Mapping[str, int]) -> None:
        """Hand out what nobody owns; topics that few may have come first."""
        for topic in sorted(free, key=lambda topic: (len(self.takers[topic]), topic)):
            takers, left, counts = self.takers[topic], free[topic], self.counts[topic]
            if not takers:
                continue
            prices = [(self.price(position), position) for position in takers]
            heapify(prices)
            while left:
                position = prices[0][1]
                taken = min(left, self.room(position))
                left -= taken
                counts[position] = counts.get(position, 0) + taken
                self.loads[position] += taken
                heapreplace(prices, (self.price(position), position))

    def level(self) -> None:
        """Move along chains until there is none left that helps.

        The dearest classes give first. If no chain leads from them to a cheaper class, then none
        of those that they can reach is on any other's chain either, and all of these are done.
        """
        waiting = [(-self.saving(c), c) for c in range(len(self.classes)) if self.loads[c]]
        heapify(waiting)
        done: set[int] = set()
        dearest: list[int] = []
        while waiting or dearest:
            if not dearest:
                highest = -waiting[0][0]
                while waiting and -waiting[0][0] == highest:
                    position = heappop(waiting)[1]
                    if position not in done and self.loads[position]:
                        if self.saving(position) == highest:
                            dearest.append(position)
                        else:  # it has changed since it was noted down
                            heappush(waiting, (-self.saving(position), position))
                continue
            chain, reached = self._cheapest_chain(dearest, highest, done)
            if not chain:
                done |= reached
                dearest = []
                continue
            self._move(chain)
            source, target = chain[0][0], chain[-1][2]
            heappush(waiting, (-self.saving(target), target))
            if not self.loads[source] or self.saving(source) != highest:
                dearest.remove(source)
                if self.loads[source]:
                    heappush(waiting, (-self.saving(source), source))

    def _unowned(self, topic: str, position: int) -> int:
        """How many of its partitions of a topic a class does not own yet: they move for nothing."""
        return self.counts[topic].get(position, 0) - self.kept[topic].get(position, 0)

    def _cheapest_chain(
        self, sources: Sequence[int], saving: float, done: set[int]
    ) -> tuple[list[tuple[int, str, int]], set[int]]:
        """The chain that moves fewest owned partitions, as (from, topic, to); and who is in reach.

        A search in the order of cost, where a step costs 0 or 1.
        """
        cost = dict.fromkeys(sources, 0)
        came: dict[int, tuple[int, str]] = {}
        seen: dict[str, int] = {}
        queue = deque((0, source) for source in sources)
        best, best_price = -1, saving
        while queue:
            so_far, position = queue.popleft()
            if so_far > cost[position]:
                continue
            if best >= 0 and so_far > cost[best]:
                break
            if self.price(position) < best_price:
                best, best_price = position, self.price(position)
            for topic in self.topics[position]:
                if not self.counts[topic].get(position):
                    continue
                step = so_far + (self._unowned(topic, position) <= 0)
                if seen.get(topic, step + 1) <= step:
                    continue
                seen[topic] = step
                for taker in self.takers[topic]:
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
        """Move as many along a chain as help equally."""
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
