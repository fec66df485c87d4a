"""A broker that is stalled for a while: stopped by a signal, or with its machine."""

from __future__ import annotations

import os
import signal
import time

import pytest

from partage.testing import BrokerProcess
from partage.wire.apis.heartbeat import HEARTBEAT
from polled_conditions import eventually

from .group_requests import describe_group, heartbeat, heartbeat_request, join_and_sync
from .raw_client import RawClient


@pytest.mark.parametrize("session_ms", [700, 1000])
def test_stalled_broker_keeps_members_with_heartbeats(
    partage_broker_process: BrokerProcess, session_ms: int
) -> None:
    with RawClient(partage_broker_process.bootstrap_servers) as raw:
        joined = join_and_sync(raw, "g", session_timeout_ms=session_ms)
        os.kill(partage_broker_process.pid, signal.SIGSTOP)
        try:
            raw.send(HEARTBEAT, heartbeat_request("g", joined))
            time.sleep(1.5)  # the session must expire by the broker's clock
        finally:
            os.kill(partage_broker_process.pid, signal.SIGCONT)
        assert raw.receive().error_code == 0
        assert heartbeat(raw, "g", joined) == 0


def test_stalled_broker_expires_silent_members_later(partage_broker_process: BrokerProcess) -> None:
    with RawClient(partage_broker_process.bootstrap_servers) as raw:
        join_and_sync(raw, "g", session_timeout_ms=1000)
        os.kill(partage_broker_process.pid, signal.SIGSTOP)
        time.sleep(2.0)  # two sessions
        os.kill(partage_broker_process.pid, signal.SIGCONT)
        eventually(lambda: describe_group(raw, "g").group_state == "Empty")
