"""The end of a member's lease, counted from the send time of requests."""

from __future__ import annotations

import pytest

from partage.client.group.lease_tracker import LeaseTracker
from partage.member.events import (
    AssignmentApplied,
    AssignmentComputed,
    CoordinatorFound,
    HeartbeatResponseReceived,
    JoinPrepared,
    JoinResponseReceived,
    StartRequested,
    SupportedProtocol,
    SyncResponseReceived,
    TimerFired,
)
from partage.member.outcome import SendHeartbeat, SendJoin
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine as Core
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

SETTINGS = MemberSettings(group_id="g", protocol_type="t", session_timeout_ms=1000)


def stable(settings=SETTINGS, synced_ms=100, protocol_type="t"):
    """Return a member alone in its generation, whose SyncGroup was sent at 10."""
    core = Core(settings)
    lease = LeaseTracker(core, settings)
    (find,) = lease.handle(StartRequested(at_ms=0)).actions
    (prepare,) = lease.handle(CoordinatorFound(at_ms=0, serial=find.serial)).actions
    protocols = (SupportedProtocol("p", b""),)
    done = JoinPrepared(at_ms=0, serial=prepare.serial, protocols=protocols)
    (join,) = lease.handle(done).actions
    assert isinstance(join, SendJoin)
    joined = JoinResponseReceived(
        at_ms=5,
        serial=join.serial,
        member_id="m",
        generation=1,
        protocol_type=protocol_type,
        protocol="p",
        leader="m",
    )
    (assign,) = lease.handle(joined).actions
    (sync,) = lease.handle(
        AssignmentComputed(at_ms=10, serial=assign.serial, assignments={})
    ).actions
    (adopt,) = lease.handle(SyncResponseReceived(at_ms=synced_ms, serial=sync.serial)).actions
    lease.handle(AssignmentApplied(at_ms=synced_ms, serial=adopt.serial))
    return lease


def beat(lease, at_ms):
    fired = lease.handle(TimerFired(at_ms=at_ms, key=MemberTimer.HEARTBEAT))
    (beat,) = [each for each in fired.actions if isinstance(each, SendHeartbeat)]
    return beat.serial


def test_lease_starts_at_sync_send_time():
    assert stable(synced_ms=900).expires_ms == 1010


def test_heartbeat_extends_lease_from_send_time():
    lease = stable()
    serial = beat(lease, 500)
    assert lease.expires_ms == 1010
    lease.handle(HeartbeatResponseReceived(at_ms=1400, serial=serial))
    assert lease.expires_ms == 1500


def test_late_heartbeat_response_keeps_send_time():
    lease = stable()
    serial = beat(lease, 500)
    lease.handle(HeartbeatResponseReceived(at_ms=90_000, serial=serial))
    assert lease.expires_ms == 1500


@pytest.mark.parametrize(("rebalance_timeout_ms", "ends_ms"), [(60_000, 1500), (1_100, 1110)])
def test_rebalance_in_progress_extends_session_only(rebalance_timeout_ms, ends_ms):
    """The rebalance may end without this member after the time for which the group waits."""
    lease = stable(
        MemberSettings(
            group_id="g",
            protocol_type="t",
            session_timeout_ms=1000,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
    )
    serial = beat(lease, 500)
    rebalance = ErrorCode.REBALANCE_IN_PROGRESS
    lease.handle(HeartbeatResponseReceived(at_ms=510, serial=serial, error=rebalance))
    assert lease.expires_ms == ends_ms


def test_join_v0_rebalance_extends_nothing():
    """JoinGroup v0: the group waits for one session, so another leader is possible at 1010."""
    lease = stable(protocol_type=None)
    serial = beat(lease, 500)
    rebalance = ErrorCode.REBALANCE_IN_PROGRESS
    lease.handle(HeartbeatResponseReceived(at_ms=510, serial=serial, error=rebalance))
    assert lease.expires_ms == 1010


def test_lease_ends_with_generation():
    lease = stable()
    serial = beat(lease, 500)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    lease.handle(HeartbeatResponseReceived(at_ms=510, serial=serial, error=unknown))
    assert lease.expires_ms is None


def test_short_rebalance_timeout_limits_lease():
    short = MemberSettings(
        group_id="g", protocol_type="t", session_timeout_ms=1000, rebalance_timeout_ms=400
    )
    assert stable(short).expires_ms == 410
