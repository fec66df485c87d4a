"""The virtual clock: a queue of calls in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

#: Start time of every world, in ms since the epoch.
START_MS: Final = 1_750_000_000_000


#: More events than this within one millisecond indicate a loop that retries without a delay.
_EVENTS_PER_MS_MAX: Final = 20_000


class LivelockError(AssertionError):
    """Raised when too many events occur at one time, so that time no longer advances."""


class Clock:
    """A clock in ms that advances only from one event to the next."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule ``call`` after ``delay_ms``. Calls at the same time run in the order of
        scheduling.
        """
        self._serial += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._serial, call))

    def run(self, for_ms: int) -> None:
        """Run all calls of the next ``for_ms``, and advance the time by it.

        Raises:
            LivelockError: Too many calls run at the same time.
        """
        until_ms = self.now_ms + for_ms
        queue, pop = self._queue, heapq.heappop
        left = _EVENTS_PER_MS_MAX
        while queue and queue[0][0] <= until_ms:
            at_ms, _, call = pop(queue)
            left = left - 1 if at_ms <= self.now_ms else _EVENTS_PER_MS_MAX
            if not left:
                raise LivelockError(
                    f"{_EVENTS_PER_MS_MAX} events at {self.now_ms} ms: the time does not advance"
                )
            self.now_ms = max(self.now_ms, at_ms)
            self.events += 1
            call()
        self.now_ms = until_ms

    def stall(self, for_ms: int) -> None:
        """Advance the time without running calls. Calls that become due run after it."""
        self.now_ms += for_ms
