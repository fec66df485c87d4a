"""The broker's clocks."""

from __future__ import annotations

import time

import pytest

from partage.broker.clock import Clock

HOUR_NS = 3_600 * 10**9


def test_now_ms_ignores_system_time_changes(monkeypatch):
    clock = Clock()
    before, wall = clock.now_ms(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + HOUR_NS)
    assert 0 <= clock.now_ms() - before < 10_000
    assert clock.wall_ms() - before >= 3_600_000
    monkeypatch.setattr(time, "time_ns", lambda: wall() - HOUR_NS)
    assert 0 <= clock.now_ms() - before < 10_000


def test_now_ms_follows_monotonic_clock(monkeypatch):
    clock = Clock()
    before, steady = clock.now_ms(), time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: steady() + HOUR_NS)
    assert 3_600_000 <= clock.now_ms() - before < 3_610_000


def test_boot_ms_includes_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def told(clock: int) -> int:
        asked.append(clock)
        return 5_000_000

    monkeypatch.setattr(time, "clock_gettime_ns", told)
    assert Clock().boot_ms() == 5
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
