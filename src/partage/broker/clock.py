"""The broker's clock."""

from __future__ import annotations

import time


class Clock:
    """Milliseconds since the epoch, from two clocks.

    Sessions and all other timers use `now_ms`, which never jumps. It reads the wall clock once at
    the start and then counts with the monotonic clock. So neither a change of the system time nor a
    suspended machine expires a session.

    Records, their retention and the durable times of transactions use `wall_ms`, as producers do.
    The monotonic clock stops while the machine is suspended, and a record's timestamp must not be
    far ahead of the broker's clock (``message.timestamp.after.max.ms``).
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the time for events and timers."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    @staticmethod
    def wall_ms() -> int:
        """Return the time for records and their retention."""
        return time.time_ns() // 1_000_000
