"""The broker's clock."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since the epoch that never jump.

    The wall is read once, at the start; from then on a steady clock counts. An administrator who
    sets the time therefore expires nobody's session. Times drift from the wall's by what the two
    clocks differ in until the next start, which is far below what any timeout or retention needs.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The time, as events carry it."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
