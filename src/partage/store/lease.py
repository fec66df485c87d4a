"""How long the owner of a session may answer without having asked.

ZooKeeper ends a session no sooner than its timeout after the last sign of life; only then somebody
else takes over. Who has sent something that was answered knows of a sign of life: it came after the
sending. So whoever answers within one timeout of that sending answers before any successor. The
clock has to count the time that a process, or its machine, was suspended.
"""

from __future__ import annotations

from typing import Final

_KEPT_SHARE: Final = 0.1  # of the timeout, for what passes between looking and sending


class Lease:
    """The right to answer, until a time on the clock that ``now_ms`` is of."""

    def __init__(self, timeout_ms: int) -> None:
        self.length_ms = round(timeout_ms * (1 - _KEPT_SHARE))
        self._until_ms: int | None = None

    def renew(self, sent_ms: int) -> None:
        """What was sent at ``sent_ms`` has been answered."""
        until_ms = sent_ms + self.length_ms
        if self._until_ms is None or until_ms > self._until_ms:
            self._until_ms = until_ms

    def suspend(self) -> None:
        """The connection is lost: be silent until something sent from now on is answered."""
        self._until_ms = None

    def holds(self, now_ms: int) -> bool:
        """Whether nobody else can have taken over yet."""
        return self._until_ms is not None and now_ms < self._until_ms
