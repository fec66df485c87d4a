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
    """When the next timer is to fire, and whether it fires too late to be believed."""

    def __init__(self) -> None:
        self._due_ms = 0
        self._until_ms = 0

    def due_ms(self, wake_ms: int, now_ms: int) -> int:
        """When to look at a deadline: at its time, but not before a rest is over."""
        self._due_ms = max(wake_ms, now_ms, self._until_ms)
        return self._due_ms

    def begins(self, now_ms: int) -> int:
        """How long the process stood still, in ms, if it did: then a rest begins. Otherwise 0."""
        stood_ms = now_ms - self._due_ms
        if stood_ms <= _STALL_MS:
            return 0
        self._until_ms = now_ms + min(stood_ms, _REST_MAX_MS)
        return stood_ms
