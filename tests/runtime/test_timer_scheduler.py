"""The timer scheduler with a shell whose clock the test controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.runtime.timer_scheduler import TimerScheduler


class FakeShell:
    """A shell; ``fired`` has the times when timers fired, and their latest deadlines."""

    def __init__(self) -> None:
        self.alarm = TimerScheduler(self)
        self.time_ms = 0
        self.reads_for_ms = 0
        self.may = True
        self.may_after_reading = True
        self.fired: list[tuple[int, int]] = []
        self.rests: list[int] = []
        self._calls: list[tuple[int, Callable[[], None]]] = []

    def stall(self, until_ms: int) -> None:
        """Advance the time, and run the callbacks that fall due."""
        self.time_ms = until_ms
        while due := [each for each in self._calls if each[0] <= self.time_ms]:
            first = min(due, key=lambda each: each[0])
            self._calls.remove(first)
            first[1]()

    def run(self, until_ms: int) -> None:
        for at_ms in range(self.time_ms, until_ms + 1, 10):
            self.stall(at_ms)

    # The interface of the scheduler.

    def now_ms(self) -> int:
        return self.time_ms

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms >= 0
        self._calls.append((self.time_ms + delay_ms, call))

    def call_after_input(self, call: Callable[[], None]) -> None:
        self.time_ms += self.reads_for_ms
        self.reads_for_ms = 0
        self.may = self.may_after_reading
        call()

    def may_fire(self) -> bool:
        return self.may

    def fire_timers(self, now_ms: int, until_ms: int) -> None:
        self.fired.append((now_ms, until_ms))

    def on_stall(self, stood_ms: int) -> None:
        self.rests.append(stood_ms)
        self.alarm.schedule(1_000)


@pytest.fixture
def shell() -> FakeShell:
    return FakeShell()


def test_earliest_deadline_wins(shell: FakeShell) -> None:
    for wake_ms in (2_000, None, 1_000, 3_000):
        shell.alarm.schedule(wake_ms)
    shell.run(4_000)
    assert shell.fired == [(1_000, 1_000)]


def test_cancelled_deadline_does_not_fire(shell: FakeShell) -> None:
    shell.alarm.schedule(1_000)
    shell.alarm.cancel()
    shell.run(2_000)
    assert shell.fired == []
    shell.alarm.schedule(3_000)
    shell.run(3_000)
    assert shell.fired == [(3_000, 3_000)]


def test_stall_delays_timers(shell: FakeShell) -> None:
    shell.alarm.schedule(1_000)
    shell.stall(3_000)
    assert (shell.fired, shell.rests) == ([], [2_000])
    shell.run(5_000)
    assert shell.fired == [(5_000, 5_000)]


def test_suspended_shell_waits_for_schedule(shell: FakeShell) -> None:
    shell.may = False
    shell.alarm.schedule(1_000)
    shell.run(3_000)
    shell.may = True
    shell.run(4_000)
    assert (shell.fired, shell.rests) == ([], []), "schedule was not called"
    shell.alarm.schedule(1_000)
    shell.run(7_000)
    assert shell.rests == [3_000]
    assert shell.fired == [(7_000, 7_000)]


def test_input_during_reading_is_read_first(shell: FakeShell) -> None:
    shell.alarm.schedule(1_000)
    shell.reads_for_ms = 500
    shell.run(2_000)
    assert shell.fired == [(1_500, 1_500)]


def test_shell_suspended_during_reading_fires_no_timer(shell: FakeShell) -> None:
    """A lease ends while the requests that have arrived wait for their turns."""
    shell.may_after_reading = False
    shell.reads_for_ms = 100
    shell.alarm.schedule(1_000)
    shell.run(3_000)
    assert shell.fired == []
    shell.may = shell.may_after_reading = True
    shell.alarm.schedule(1_000)
    shell.run(7_000)
    assert shell.rests == [2_000]
    assert shell.fired == [(5_000, 5_000)]
