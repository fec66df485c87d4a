"""Close during a rebalance: all delivered records are committed."""

from __future__ import annotations

import threading

import pytest

from .test_group_members import read

pytestmark = pytest.mark.timeout(600)


def test_close_waits_for_rebalance_to_commit(partage_broker, topic, member_of):
    """A cooperative member keeps reading while it rejoins, when commits are refused."""
    patient = {"heartbeat_interval_ms": 20_000, "session_timeout_ms": 60_000}
    member = member_of(enable_auto_commit=True, auto_commit_interval_ms=600_000, **patient)
    member.subscribe([topic])
    assert len(read(60, member)) == 60
    with partage_broker.faults.hold("JoinGroup") as held:
        member.subscribe([topic, "another"])
        held.wait()
        closing = threading.Thread(target=member.close)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive()
    closing.join(60)
    assert not closing.is_alive()
    after = member_of()
    committed = after.committed([(topic, partition) for partition in range(6)])
    assert [each and each.offset for each in committed.values()] == [10] * 6
