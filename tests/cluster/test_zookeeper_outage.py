"""A ZooKeeper outage that is longer than members' sessions, shorter than brokers' sessions."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from threading import Timer

import pytest

from broker.raw_client import RawClient
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest

from .brokers import PATIENCE_S, brokers
from .group_client import client_coordinated_by
from .zookeeper_ensemble import Ensemble

pytestmark = [
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.interop,
    pytest.mark.timeout(600),
]

SESSION_MS = 30_000
MEMBERS_MS = 4_000
#: Longer than the lease of a broker, by more than a member's session.
AWAY_S = 26


def test_zookeeper_outage_expires_no_waiting_member(
    zookeeper: Ensemble, tmp_path: Path, path: str
) -> None:
    """A member that, like kafka-python's, keeps its id and waits for the response."""
    overrides = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    with brokers(tmp_path / "all", zookeeper.connect_string, path, overrides=overrides) as running:
        group = client_coordinated_by(running, 2)
        joined = group.join_and_sync(session_timeout_ms=MEMBERS_MS)
        beat = HeartbeatRequest(
            group_id=group.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
        )
        server = zookeeper.leader
        server.signal(signal.SIGSTOP)
        back = Timer(AWAY_S, server.signal, [signal.SIGCONT])
        back.start()
        longest_s, until_s = 0.0, time.monotonic() + AWAY_S + 5
        try:
            with RawClient(running[2].address, timeout_s=PATIENCE_S) as raw:
                while time.monotonic() < until_s:
                    asked_s = time.monotonic()
                    assert raw.request(HEARTBEAT, beat).error_code == 0
                    longest_s = max(longest_s, time.monotonic() - asked_s)
                    time.sleep(MEMBERS_MS / 4000)  # a member's heartbeat interval
        finally:
            back.cancel()
            server.signal(signal.SIGCONT)
        group.close()
        assert longest_s > MEMBERS_MS / 1000, "it had no answer for longer than its session"
        assert "expired" not in running[2].log_text()
