"""The frequency of lease renewals."""

from __future__ import annotations

import time

import pytest

from partage.broker.cluster.lease_renewal import _RENEWALS, boot_ms
from partage.store.lease import Lease

TIMEOUT_MS = 6_000


def test_one_slow_renewal_keeps_lease_valid() -> None:
    lease = Lease(TIMEOUT_MS, begun_ms=0)
    sent_ms = 0
    for number in range(40):
        answered_ms = sent_ms + (TIMEOUT_MS // 4 if number == 20 else 5)
        assert number < 5 or lease.is_valid(answered_ms), f"question {number}"
        lease.renew(sent_ms, answered_ms)
        sent_ms = max(sent_ms + TIMEOUT_MS // _RENEWALS, answered_ms)


def test_boot_ms_includes_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def told(clock: int) -> int:
        asked.append(clock)
        return 5_000_000

    monkeypatch.setattr(time, "clock_gettime_ns", told)
    assert boot_ms() == 5
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
