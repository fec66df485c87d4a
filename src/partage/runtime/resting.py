"""What timers do after their process stood still, or could answer nobody.

A process that was stopped, or starved, finds all its deadlines passed when it goes on. What its
clients sent meanwhile has to be read first, and the time is not counted: nobody who is alive may
be expired for it. Nor for the time in which it was not sure to have its groups: whoever has no
answer sends no more.
"""

from __future__ import annotations

from typing import Final

_STALL_MS: Final = 200
_REST_MAX_MS: Final = 10_000


class Rest:
    """When the next timer is to fire, and whether it comes due too late to be believed.

    A shell asks `begins` when it has come due. If no rest begins it reads what has arrived, asks
    `reads_again`, and fires the timers with deadlines up to `fires_until_ms`.

    A process that is merely busy is late each time, too. So how long it reads does not count as a
    standstill, and a deadline has one rest, or a longer one if it stands still for longer: what
    falls due while it rests has a rest of its own.
    """

    def __init__(self) -> None:
        self._due_ms = 0
        self._wake_ms = 0  # the deadline that is due then
        self._until_ms = 0  # the end of the last rest
        self._rest_ms = 0  # how long it was
        self._rested_ms = 0  # when it began: earlier deadlines have had it
        self._limit_ms: int | None = None
        self._held_ms: int | None = None  # since when a timer has been due, and may not fire
        self._held_at_ms = 0  # when one was held last
        self._came_ms: int | None = None  # since when what has arrived is read for the first time

    def due_ms(self, wake_ms: int, now_ms: int) -> int:
        """When to look at a deadline: at its time, but not before a rest is over."""
        self._wake_ms = wake_ms
        self._due_ms = max(wake_ms, now_ms, self._until_ms)
        return self._due_ms

    def hold(self, now_ms: int) -> None:
        """The timer is due, and none may fire now: when it may, that was a standstill."""
        if self._held_ms is None or self._wake_ms > self._held_at_ms:
            self._held_ms = self._due_ms
        self._held_at_ms = now_ms

    def begins(self, now_ms: int) -> int:
        """How long the process stood still, in ms, if the timer is to wait for that, or 0."""
        since_ms, self._held_ms = self._held_ms, None
        if since_ms is None or self._wake_ms > self._held_at_ms:  # what was held is gone
            since_ms = self._due_ms
        stood_ms = now_ms - since_ms
        self._came_ms = now_ms
        self._limit_ms = None
        if stood_ms <= _STALL_MS:
            return 0
        has_rested = self._wake_ms <= self._rested_ms and stood_ms <= self._rest_ms
        if has_rested:
            self._limit_ms = self._rested_ms
        self._rested_ms = now_ms
        self._rest_ms = min(stood_ms, _REST_MAX_MS)
        self._until_ms = now_ms + self._rest_ms
        return 0 if has_rested else stood_ms

    def reads_again(self, now_ms: int) -> bool:
        """Whether the process may have stood still while it read, and is to do so once more."""
        came_ms, self._came_ms = self._came_ms, None
        return came_ms is not None and now_ms - came_ms > _STALL_MS

    def fires_until_ms(self, now_ms: int) -> int:
        """The last deadline whose timer may fire: now, or earlier if later ones are to rest."""
        return now_ms if self._limit_ms is None else self._limit_ms
