"""Grace period of timers after a stall of the process, or after a time in which it could not reply.

A process that was stopped or starved of CPU finds all deadlines passed when it continues. It must
first read what its clients sent meanwhile, and no live member may expire because of the stall. The
same holds for a time in which the process was not sure to own its groups: clients without a reply
send no more requests.
"""

from __future__ import annotations

from typing import Final

_STALL_MS: Final = 200
_GRACE_MAX_MS: Final = 10_000


class StallGrace:
    """The grace period of timers that are late because of a stall.

    When the timer is due, a shell calls `begin_if_stalled`. If no grace period begins, the shell
    reads its input, calls `must_read_again`, and fires the timers with deadlines up to
    `fire_until_ms`.

    A process that is merely busy is late each time, too. Therefore the time spent reading does not
    count as a stall. Each deadline gets one grace period, or a second one after a longer stall.
    Timers that fall due during a grace period get a separate one.
    """

    def __init__(self) -> None:
        self._check_at_ms = 0
        self._deadline_ms = 0  # the deadline that is checked then
        self._grace_until_ms = 0  # the end of the last grace period
        self._grace_ms = 0  # its length
        self._grace_began_ms = 0  # its start: earlier deadlines have had a grace period
        self._limit_ms: int | None = None
        # since when a timer has been due but could not fire
        self._suspended_since_ms: int | None = None
        self._last_suspended_ms = 0  # when a timer was last suspended
        self._reading_since_ms: int | None = None  # start of the first reading of input

    def check_at_ms(self, wake_ms: int, now_ms: int) -> int:
        """Return when to check a deadline: at its time, but not during a grace period."""
        self._deadline_ms = wake_ms
        self._check_at_ms = max(wake_ms, now_ms, self._grace_until_ms)
        return self._check_at_ms

    def suspend(self, now_ms: int) -> None:
        """Note that a timer is due but must not fire now; the waiting time counts as a stall."""
        if self._suspended_since_ms is None or self._deadline_ms > self._last_suspended_ms:
            self._suspended_since_ms = self._check_at_ms
        self._last_suspended_ms = now_ms

    def begin_if_stalled(self, now_ms: int) -> int:
        """Return the length of a stall for which the timer must wait, in ms; 0 for none."""
        since_ms, self._suspended_since_ms = self._suspended_since_ms, None
        # the suspended timer no longer exists
        if since_ms is None or self._deadline_ms > self._last_suspended_ms:
            since_ms = self._check_at_ms
        stood_ms = now_ms - since_ms
        self._reading_since_ms = now_ms
        self._limit_ms = None
        if stood_ms <= _STALL_MS:
            return 0
        has_rested = self._deadline_ms <= self._grace_began_ms and stood_ms <= self._grace_ms
        if has_rested:
            self._limit_ms = self._grace_began_ms
        self._grace_began_ms = now_ms
        self._grace_ms = min(stood_ms, _GRACE_MAX_MS)
        self._grace_until_ms = now_ms + self._grace_ms
        return 0 if has_rested else stood_ms

    def must_read_again(self, now_ms: int) -> bool:
        """True if the process may have stalled while it read, so it must read once more."""
        came_ms, self._reading_since_ms = self._reading_since_ms, None
        return came_ms is not None and now_ms - came_ms > _STALL_MS

    def fire_until_ms(self, now_ms: int) -> int:
        """Return the latest deadline that may fire: now, or earlier if later ones have a grace
        period.
        """
        return now_ms if self._limit_ms is None else self._limit_ms
