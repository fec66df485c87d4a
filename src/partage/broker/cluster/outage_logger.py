"""What the log says while ZooKeeper cannot be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 10.0  # and then after twice that
_LOG_INTERVAL_MAX_S: Final = 60.0


class OutageTimer(Protocol):
    """Something that is to happen later."""

    def cancel(self) -> None:
        """It does not happen."""


class OutageLogger:
    """Tells when the connection is lost, now and then that it still is, and when it is back.

    ``later`` has something called after some seconds, and ``now_ms`` is a clock.
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
        """The connection is lost."""
        if self._since_ms is None:
            self._since_ms = self._now_ms()
            log.warning("lost the connection to ZooKeeper: groups are paused")
            self._schedule_log()

    def on_reconnected(self) -> None:
        """It is back, and the session goes on."""
        if self._since_ms is not None:
            log.info("reconnected to ZooKeeper after %s: groups continue", self._duration())
        self.reset()

    def reset(self) -> None:
        """The session is over, of which others tell; or the broker ends."""
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
