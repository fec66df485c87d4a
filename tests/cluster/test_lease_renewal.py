"""The frequency of lease renewals."""

from __future__ import annotations

from partage.broker.cluster.lease_renewal import _RENEWALS
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
