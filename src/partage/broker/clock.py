"""The broker's clock."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since the epoch, of two kinds.

    Sessions and everything else that is waited for go by `now_ms`, which never jumps: the wall is
    read once, at the start, and from then on a steady clock counts. An administrator who sets the
    time expires nobody's session, nor does a machine that slept.

    Records and their retention go by `wall_ms`, as producers do: a steady clock stands still while
    the machine sleeps, and a record's time must not be far ahead of the broker's
    (``message.timestamp.after.max.ms``).
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The time, as events carry it."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    @staticmethod
    def wall_ms() -> int:
        """The time, as records carry it."""
        return time.time_ns() // 1_000_000
