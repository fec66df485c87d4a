"""Log lines during an outage of ZooKeeper, and after it."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

import pytest

from partage.broker.cluster.outage_logger import OutageLogger

Entry = tuple[int, int, Callable[[], None]]


class FakeTimer:
    """A timer of `FakeTimers`."""

    def __init__(self, waiting: list[Entry], entry: Entry) -> None:
        self._waiting, self._entry = waiting, entry

    def cancel(self) -> None:
        if self._entry in self._waiting:
            self._waiting.remove(self._entry)
            heapq.heapify(self._waiting)


class FakeTimers:
    """Timers with a clock that a test advances."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._waiting: list[Entry] = []
        self._count = 0

    def later(self, after_s: float, what: Callable[[], None]) -> FakeTimer:
        self._count += 1
        entry = (self.now_ms + round(after_s * 1000), self._count, what)
        heapq.heappush(self._waiting, entry)
        return FakeTimer(self._waiting, entry)

    def clock(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        until_ms = self.now_ms + round(seconds * 1000)
        while self._waiting and self._waiting[0][0] <= until_ms:
            self.now_ms, _, what = heapq.heappop(self._waiting)
            what()
        self.now_ms = until_ms


@pytest.fixture(autouse=True)
def everything_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_outage_is_logged_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers = FakeTimers()
    outage = OutageLogger(timers.later, timers.clock)
    outage.on_reconnected()  # there was no outage
    outage.on_disconnected()
    timers.pass_s(5)
    outage.on_disconnected()
    timers.pass_s(190)
    outage.on_reconnected()
    timers.pass_s(1_000)
    assert caplog.messages == [
        "lost the connection to ZooKeeper: groups are paused",
        *(
            f"no connection to ZooKeeper for {after}.0 s: groups are paused"
            for after in (10, 30, 70, 130, 190)
        ),
        "reconnected to ZooKeeper after 195.0 s: groups continue",
    ]


def test_next_outage_restarts_intervals(caplog: pytest.LogCaptureFixture) -> None:
    timers = FakeTimers()
    outage = OutageLogger(timers.later, timers.clock)
    outage.on_disconnected()
    timers.pass_s(35)
    outage.reset()
    timers.pass_s(1_000)
    caplog.clear()
    outage.on_disconnected()
    timers.pass_s(15)
    outage.on_reconnected()
    assert caplog.messages[1:] == [
        "no connection to ZooKeeper for 10.0 s: groups are paused",
        "reconnected to ZooKeeper after 15.0 s: groups continue",
    ]
