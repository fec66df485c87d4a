"""Schedules a shard's timers on the clock of its shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partage.runtime.stall_grace import StallGrace


class TimerShell(Protocol):
    """The functions that a `TimerScheduler` needs from its shell."""

    def now_ms(self) -> int:
        """Return the time, in ms since the epoch."""

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call a function after ``delay_ms``."""

    def call_after_input(self, call: Callable[[], None]) -> None:
        """Call a function once all input that has arrived by now was read and handled."""

    def may_fire(self) -> bool:
        """True if the shell may make decisions now.

        If it is False, the shell must call `TimerScheduler.schedule` when it becomes True.
        """

    def fire_timers(self, now_ms: int, until_ms: int) -> None:
        """Fire the timers with deadlines up to ``until_ms``, then schedule the next deadline."""

    def on_stall(self, stood_ms: int) -> None:
        """Handle a stall of ``stood_ms``, during which no input was read.

        The timers wait for that time. The shell must call `TimerScheduler.schedule`.
        """


class TimerScheduler:
    """The schedule of a driver's next deadline.

    Input that has arrived is read before any timer fires. After a stall, timers wait: see
    `StallGrace`.
    """

    def __init__(self, shell: TimerShell) -> None:
        self._shell = shell
        self._grace = StallGrace()
        self._deadline_ms: int | None = None  # the deadline that is scheduled
        self._serial = 0  # of the current schedule; earlier callbacks are void

    def schedule(self, wake_ms: int | None) -> None:
        """Schedule a deadline, unless an earlier one is scheduled."""
        if wake_ms is None or (self._deadline_ms is not None and wake_ms >= self._deadline_ms):
            return
        self.cancel()
        self._deadline_ms = wake_ms
        serial, now_ms = self._serial, self._shell.now_ms()
        due_ms = self._grace.check_at_ms(wake_ms, now_ms)
        self._shell.call_later(due_ms - now_ms, lambda: self._on_due(serial))

    def cancel(self) -> None:
        """Cancel the scheduled deadline."""
        self._deadline_ms = None
        self._serial += 1

    def _on_due(self, serial: int) -> None:
        """Read input that has arrived, before the timers fire.

        A stall may end shortly after the deadline, and heartbeats may have waited for a long time
        by then.
        """
        if serial != self._serial:
            return
        now_ms = self._shell.now_ms()
        if self._is_suspended(now_ms):
            return
        if stood_ms := self._grace.begin_if_stalled(now_ms):
            self._deadline_ms = None
            self._shell.on_stall(stood_ms)
        else:
            self._read_input(serial)

    def _read_input(self, serial: int) -> None:
        self._shell.call_after_input(lambda: self._on_input_read(serial))

    def _on_input_read(self, serial: int) -> None:
        if serial != self._serial:
            return
        now_ms = self._shell.now_ms()
        if self._grace.must_read_again(now_ms):
            self._read_input(serial)
        elif not self._is_suspended(now_ms):  # again: the input may have waited for its turns
            self._deadline_ms = None
            self._shell.fire_timers(now_ms, self._grace.fire_until_ms(now_ms))

    def _is_suspended(self, now_ms: int) -> bool:
        """Return True, and suspend the due timers, if the shell may not fire them now."""
        if self._shell.may_fire():
            return False
        self._grace.suspend(now_ms)
        self._deadline_ms = None
        return True
