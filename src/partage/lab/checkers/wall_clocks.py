"""The wall clocks of brokers, for rules about times that a load computes from stored ones.

A transaction coordinator that loads its shard computes the age of an open transaction from its wall
clock and the stored time of the begin, as Kafka does. If the clocks differ, the transaction times
out earlier or later.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from partage.lab.history import History, TransactionShardLoaded, WallClockStepped


class _Step(NamedTuple):
    """The difference of the wall clock of a broker since a time."""

    at_ms: int
    difference_ms: int


class WallClocks:
    """Tracks the differences between the wall clocks of brokers and the time of the history."""

    def __init__(self, history: History) -> None:
        self._steps: dict[int, list[_Step]] = {}
        self._loads: list[_Step] = []  # of shards with transactional ids
        history.subscribe(WallClockStepped, self._on_step)
        history.subscribe(TransactionShardLoaded, self._on_loaded)

    def _on_step(self, entry: WallClockStepped) -> None:
        step = _Step(entry.at_ms, entry.difference_ms)
        self._steps.setdefault(entry.broker, []).append(step)

    def _on_loaded(self, entry: TransactionShardLoaded) -> None:
        self._loads.append(_Step(entry.at_ms, self.difference_ms(entry.broker)))

    def difference_ms(self, broker: int) -> int:
        """Return the present difference of a broker's wall clock."""
        steps = self._steps.get(broker)
        return steps[-1].difference_ms if steps else 0

    def largest_ms(self, since_ms: int) -> int:
        """Return the largest difference of any wall clock at or after a time."""
        return max(self._differences_ms(since_ms), default=0)

    def has_aged(self, since_ms: int, at_ms: int, by_ms: int) -> bool:
        """Return True if a load may have taken a transaction for older than ``by_ms``.

        Args:
            since_ms: The earliest time at which the transaction may have begun.
            at_ms: The present time.
            by_ms: The age.
        """
        lowest_ms = min(self._differences_ms(since_ms), default=0)
        return any(
            at_ms - since_ms + load.difference_ms - lowest_ms >= by_ms
            for load in self._loads
            if load.at_ms >= since_ms
        )

    def _differences_ms(self, since_ms: int) -> list[int]:
        """Return all differences at or after a time."""
        found = []
        for steps in self._steps.values():
            first = max(bisect_left(steps, (since_ms,)) - 1, 0)
            found += [step.difference_ms for step in steps[first:]]
        return found
