"""The virtual clock: what is to happen, in the order in which it will."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

#: When every world begins, in ms since the epoch.
START_MS: Final = 1_750_000_000_000


#: More than this in one millisecond is somebody who asks again and again, without waiting.
_EVENTS_PER_MS_MAX: Final = 20_000


class LivelockError(AssertionError):
    """So much happens at one moment that the next never comes."""


class Clock:
    """Time in ms that passes only from one event to the next."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Have ``call`` happen after ``delay_ms``; what falls on one time keeps its order."""
        self._serial += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._serial, call))

    def run(self, for_ms: int) -> None:
        """Let everything happen that falls into the next ``for_ms``."""
        until_ms = self.now_ms + for_ms
        queue, pop = self._queue, heapq.heappop
        left = _EVENTS_PER_MS_MAX
        while queue and queue[0][0] <= until_ms:
            at_ms, _, call = pop(queue)
            left = left - 1 if at_ms <= self.now_ms else _EVENTS_PER_MS_MAX
            if not left:
                raise LivelockError(
                    f"{_EVENTS_PER_MS_MAX} events, and it is still {self.now_ms} ms"
                )
            self.now_ms = max(self.now_ms, at_ms)
            self.events += 1
            call()
        self.now_ms = until_ms

    def stall(self, for_ms: int) -> None:
        """Let time pass in which nothing happens: what falls due meanwhile happens after it."""
        self.now_ms += for_ms
