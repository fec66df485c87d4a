"""What timers do after their process stood still.

A process that was stopped, or starved, finds all its deadlines passed when it goes on. What its
clients sent meanwhile has to be read first, and the time is not counted: nobody who is alive may
be expired for it.
"""

from __future__ import annotations

from typing import Final

_STALL_MS: Final = 200
_REST_MAX_MS: Final = 10_000


class Rest:
    """When the next timer is to fire, and whether it comes due too late to be believed.

    A shell asks `begins` when it has come due. If no rest begins it reads what has arrived, asks
    `reads_again`, and lets the timer fire.

    A process that is merely busy is late each time, too. How long it reads does not count as a
    standstill, and after a rest only a longer one makes it rest again: or it would do nothing else.
    """

    def __init__(self) -> None:
        self._due_ms = 0
        self._until_ms = 0
        self._rest_ms = 0  # how long the last rest was
        self._came_ms: int | None = None  # since when what has arrived is read for the first time

    def due_ms(self, wake_ms: int, now_ms: int) -> int:
        """When to look at a deadline: at its time, but not before a rest is over."""
        self._due_ms = max(wake_ms, now_ms, self._until_ms)
        return self._due_ms

    def begins(self, now_ms: int) -> int:
        """How long the process stood still, in ms, if it did: then a rest begins. Otherwise 0."""
        stood_ms = now_ms - self._due_ms
        has_rested = self._due_ms == self._until_ms
        self._came_ms = now_ms
        if stood_ms <= (max(_STALL_MS, self._rest_ms) if has_rested else _STALL_MS):
            return 0
        self._rest_ms = min(stood_ms, _REST_MAX_MS)
        self._until_ms = now_ms + self._rest_ms
        return stood_ms

    def reads_again(self, now_ms: int) -> bool:
        """Whether the process may have stood still while it read, and is to do so once more."""
        came_ms, self._came_ms = self._came_ms, None
        return came_ms is not None and now_ms - came_ms > _STALL_MS
