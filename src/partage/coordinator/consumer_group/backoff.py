"""When work that failed may be tried again."""

from __future__ import annotations

from typing import Final

_FIRST_MS: Final = 1_000
_MAX_MS: Final = 30_000


class Backoff:
    """The pause after failures: one second after the first, twice as long after each further one.

    Times are wall clock times. A clock that was set back ends the pause.
    """

    __slots__ = ("_failed_ms", "_pause_ms")

    def __init__(self) -> None:
        self._failed_ms = 0
        self._pause_ms = 0  # after the last failure; 0 after a success

    def is_over(self, at_ms: int) -> bool:
        """True if the work may be tried."""
        return not 0 <= at_ms - self._failed_ms < self._pause_ms

    def add_failure(self, at_ms: int) -> None:
        """Start a pause."""
        self._failed_ms = at_ms
        self._pause_ms = min(max(_FIRST_MS, 2 * self._pause_ms), _MAX_MS)

    def reset(self) -> None:
        """End the pause, and forget the failures."""
        self._pause_ms = 0
