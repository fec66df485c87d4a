"""Log lines while ZooKeeper is unreachable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 10.0  # doubled after each line
_LOG_INTERVAL_MAX_S: Final = 60.0


class OutageTimer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class OutageLogger:
    """Logs that the connection is lost, periodically that it still is, and that it is back.

    Args:
        later: schedules a call after a delay in seconds.
        now_ms: the current time in milliseconds.
    """

    def __init__(
        self, later: Callable[[float, Callable[[], None]], OutageTimer], now_ms: Callable[[], int]
    ) -> None:
        self._call_later = later
        self._now_ms = now_ms
        self._since_ms: int | None = None
        self._timer: OutageTimer | None = None
        self._wait_s = _LOG_INTERVAL_S

    def on_disconnected(self) -> None:
        """Log that the connection is lost."""
        if self._since_ms is None:
            self._since_ms = self._now_ms()
            log.warning("lost the connection to ZooKeeper: groups are paused")
            self._schedule_log()

    def on_reconnected(self) -> None:
        """Log that the connection is back in the same session."""
        if self._since_ms is not None:
            log.info("reconnected to ZooKeeper after %s: groups continue", self._duration())
        self.reset()

    def reset(self) -> None:
        """Stop logging: the session has ended, which is logged elsewhere, or the broker stops."""
        self._since_ms, self._wait_s = None, _LOG_INTERVAL_S
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule_log(self) -> None:
        self._timer = self._call_later(self._wait_s, self._log)
        self._wait_s = min(2 * self._wait_s, _LOG_INTERVAL_MAX_S)

    def _log(self) -> None:
        log.warning("no connection to ZooKeeper for %s: groups are paused", self._duration())
        self._schedule_log()

    def _duration(self) -> str:
        assert self._since_ms is not None
        return f"{(self._now_ms() - self._since_ms) / 1000:.1f} s"
