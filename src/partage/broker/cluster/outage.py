"""What the log says while ZooKeeper cannot be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

_TOLD_AGAIN_AFTER_S: Final = 10.0  # and then after twice that
_TOLD_AT_LEAST_EVERY_S: Final = 60.0


class Timer(Protocol):
    """Something that is to happen later."""

    def cancel(self) -> None:
        """It does not happen."""


class Outage:
    """Tells when the connection is lost, now and then that it still is, and when it is back.

    ``later`` has something called after some seconds, and ``now_ms`` is a clock.
    """

    def __init__(
        self, later: Callable[[float, Callable[[], None]], Timer], now_ms: Callable[[], int]
    ) -> None:
        self._later = later
        self._now_ms = now_ms
        self._since_ms: int | None = None
        self._timer: Timer | None = None
        self._wait_s = _TOLD_AGAIN_AFTER_S

    def begins(self) -> None:
        """The connection is lost."""
        if self._since_ms is None:
            self._since_ms = self._now_ms()
            log.warning("the connection to ZooKeeper is lost: groups wait")
            self._tell_later()

    def ends(self) -> None:
        """It is back, and the session goes on."""
        if self._since_ms is not None:
            log.info("connected to ZooKeeper again after %s: groups go on", self._lasted())
        self.forget()

    def forget(self) -> None:
        """The session is over, of which others tell; or the broker ends."""
        self._since_ms, self._wait_s = None, _TOLD_AGAIN_AFTER_S
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_later(self) -> None:
        self._timer = self._later(self._wait_s, self._tell)
        self._wait_s = min(2 * self._wait_s, _TOLD_AT_LEAST_EVERY_S)

    def _tell(self) -> None:
        log.warning("no connection to ZooKeeper for %s: groups wait", self._lasted())
        self._tell_later()

    def _lasted(self) -> str:
        assert self._since_ms is not None
        return f"{(self._now_ms() - self._since_ms) / 1000:.1f} s"
