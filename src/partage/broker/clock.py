"""The broker's clocks."""

from __future__ import annotations

import time


class Clock:
    """Times in milliseconds, from three clocks. A simulated world has a subclass.

    Sessions and all other timers use `now_ms`, which never jumps. It reads the wall clock once at
    the start and then counts with the monotonic clock. So neither a change of the system time nor a
    suspended machine expires a session.

    Records, their retention and the durable times of transactions use `wall_ms`, as producers do.
    The monotonic clock stops while the machine is suspended, and a record's timestamp must not be
    far ahead of the broker's clock (``message.timestamp.after.max.ms``).

    Leases use `boot_ms`: a session of ZooKeeper goes on while this machine is suspended.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return the time since the epoch, for events and timers."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    def wall_ms(self) -> int:
        """Return the time since the epoch, for records and their retention."""
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Return the time of a clock that also runs while the process or machine is suspended."""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(clock) // 1_000_000
