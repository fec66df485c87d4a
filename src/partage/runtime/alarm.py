"""When a shard's timers fire, on the clock of whatever shell it lives in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partage.runtime.resting import Rest


class Shell(Protocol):
    """What an alarm needs of its shell."""

    def now_ms(self) -> int:
        """The time, in ms since the epoch."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Have something called after a while."""

    def read_first(self, call: Callable[[], None]) -> None:
        """Have something called once what has arrived by now has been read, and heard of."""

    def may_fire(self) -> bool:
        """Whether anything may be decided now. If not, `Alarm.set` is called when it may be."""

    def fire(self, now_ms: int, until_ms: int) -> None:
        """Fire the timers with deadlines up to ``until_ms``; then `Alarm.set` for the next."""

    def rested(self, stood_ms: int) -> None:
        """So long nobody could be heard of: timers wait for that. `Alarm.set` is to be called."""


class Alarm:
    """Set for the next deadline of a driver. What has arrived is read before any timer fires, and
    after a standstill they wait: see `Rest`.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._rest = Rest()
        self._wake_ms: int | None = None  # the deadline that it is set for
        self._serial = 0  # of the setting that counts

    def set(self, wake_ms: int | None) -> None:
        """Be set for a deadline, unless it is for an earlier one."""
        if wake_ms is None or (self._wake_ms is not None and wake_ms >= self._wake_ms):
            return
        self.cancel()
        self._wake_ms = wake_ms
        serial, now_ms = self._serial, self._shell.now_ms()
        due_ms = self._rest.due_ms(wake_ms, now_ms)
        self._shell.later(due_ms - now_ms, lambda: self._due(serial))

    def cancel(self) -> None:
        """Be set for nothing."""
        self._wake_ms = None
        self._serial += 1

    def _due(self, serial: int) -> None:
        """Read what has arrived first: after a standstill, however short a time it ended after this
        was due, signs of life may have been there for long.
        """
        if serial != self._serial:
            return
        now_ms = self._shell.now_ms()
        if not self._shell.may_fire():
            self._rest.hold(now_ms)
            self._wake_ms = None
        elif stood_ms := self._rest.begins(now_ms):
            self._wake_ms = None
            self._shell.rested(stood_ms)
        else:
            self._read(serial)

    def _read(self, serial: int) -> None:
        self._shell.read_first(lambda: self._have_read(serial))

    def _have_read(self, serial: int) -> None:
        if serial != self._serial:
            return
        now_ms = self._shell.now_ms()
        if self._rest.reads_again(now_ms):
            self._read(serial)
        else:
            self._wake_ms = None
            self._shell.fire(now_ms, self._rest.fires_until_ms(now_ms))
