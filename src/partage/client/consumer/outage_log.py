"""Warnings about work that is retried until it succeeds."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

_WARN_AFTER_S: Final = 5.0


class OutageLog:
    """Logs one warning for work that has failed for some time, and its success after that."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._warned: set[str] = set()

    def on_failure(self, work: str, error: Exception, now_s: float) -> None:
        """Note a failed attempt.

        Args:
            work: the work that failed, such as ``metadata``.
            error: the reason.
            now_s: the time in seconds.
        """
        failed_s = now_s - self._since_s.setdefault(work, now_s)
        if failed_s >= _WARN_AFTER_S and work not in self._warned:
            self._warned.add(work)
            log.warning(
                "no success for %.0f s, still trying: work=%s error=%s", failed_s, work, error
            )

    def on_success(self, work: str) -> None:
        """Note a success."""
        self._since_s.pop(work, None)
        if work in self._warned:
            self._warned.remove(work)
            log.info("success after an outage: work=%s", work)
