"""Leases of sessions, and the difference of clocks."""

from __future__ import annotations

import pytest

from partage.store.cluster_registry import clock_skew_ms
from partage.store.lease import Lease


def at_once(lease: Lease, *asked_ms: int) -> None:
    """Renew the lease at these times, with immediate replies."""
    for sent_ms in asked_ms:
        lease.renew(sent_ms, sent_ms)


def test_lease_ends_before_session() -> None:
    lease = Lease(9_000, begun_ms=0)
    assert not lease.is_valid(0)
    at_once(lease, 1_000)
    assert lease.is_valid(8_099)
    assert not lease.is_valid(8_100)


def test_latest_request_does_not_renew_yet() -> None:
    lease = Lease(9_000, begun_ms=0)
    for sent_ms in (1_500, 3_000, 4_499):
        at_once(lease, sent_ms)
        assert not lease.is_valid(8_100)
    at_once(lease, 4_500)  # of 1,500, because that request was a third of the timeout earlier
    assert lease.is_valid(9_599)
    assert not lease.is_valid(9_600)


def test_slow_request_renews_only_after_its_reply() -> None:
    lease = Lease(9_000, begun_ms=0)
    lease.renew(sent_ms=1_500, answered_ms=6_000)
    at_once(lease, 6_001, 8_099)
    assert lease.is_valid(8_099)
    assert not lease.is_valid(8_100)
    at_once(lease, 9_000)  # by now the leader has heard of the reply at 6,000
    assert lease.is_valid(1_500 + 8_099)
    assert not lease.is_valid(1_500 + 8_100)


def test_frequent_requests_do_not_extend_lease() -> None:
    lease = Lease(9_000, begun_ms=0)
    at_once(lease, *range(0, 6_001, 10))
    assert lease.is_valid(3_000 + 8_099)
    assert not lease.is_valid(3_000 + 8_100)


def test_late_reply_renews_from_sent_time() -> None:
    lease = Lease(9_000, begun_ms=0)
    at_once(lease, 6_000, 1_000)
    assert not lease.is_valid(8_100)
    at_once(lease, 9_000)
    assert lease.is_valid(14_099)


def test_lost_connection_invalidates_until_renewed() -> None:
    lease = Lease(9_000, begun_ms=0)
    at_once(lease, 0)
    lease.invalidate()
    assert not lease.is_valid(1)
    at_once(lease, 1_000)
    assert lease.is_valid(1_001)


@pytest.mark.parametrize(("theirs", "ahead"), [(50, 50), (100, 0), (150, 0), (200, 0), (260, -60)])
def test_clock_skew(theirs: int, ahead: int) -> None:
    assert clock_skew_ms(theirs, 100, 200) == ahead
