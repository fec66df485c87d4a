"""The deadline of a wait in the user's thread."""

from __future__ import annotations

import time


class Deadline:
    """A point in time at which waiting ends; ``timeout_ms`` None means never."""

    def __init__(self, timeout_ms: int | None) -> None:
        self._at = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def remaining_s(self) -> float | None:
        """Seconds that remain, at least 0; None if there is no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def is_expired(self) -> bool:
        """True if the deadline has passed."""
        return self.remaining_s == 0.0

    def earlier(self, other: Deadline) -> Deadline:
        """Return the one of two deadlines that ends first."""
        if self._at is None or (other._at is not None and other._at < self._at):
            return other
        return self
