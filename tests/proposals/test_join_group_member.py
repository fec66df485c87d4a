"""The member of the designs with JoinGroup: events that cross."""

from __future__ import annotations

import pytest

from partage.assignors import RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.join_group.member import MemberState, Timer
from partage.proposals.join_group.settings import MemberSettings
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.multi_assignor.messages import (
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.types import Message

SETTINGS = MemberSettings(group_id="g")


def member_with_partitions() -> MultiAssignorMember:
    """Return a member that owns a partition, and whose connection was lost since."""
    options = MultiAssignorOptions(assignor=RoundRobin(), checks_metadata=False)
    member = MultiAssignorMember(SETTINGS, frozenset({"t"}), options)
    member.handle(machine.Started(at_ms=0))
    member.handle(machine.Connected(at_ms=0))
    outcome = member.handle(machine.MetadataFetched(at_ms=0, topics={"t": 1}))
    request = sent(outcome)
    assert isinstance(request, JoinGroupRequest)
    member.handle(machine.ResponseReceived(at_ms=0, message=join_response(request)))
    assert member.owned == {TopicPartition("t", 0)}
    member.handle(machine.Disconnected(at_ms=1))
    member.handle(machine.TimerFired(at_ms=101, key=Timer.RETRY))
    return member


def join_response(request: JoinGroupRequest) -> Message:
    (protocol,) = request.protocols
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=1,
        protocol_name=protocol.name,
        member_id="m",
        members=[JoinGroupMember(member_id="m", metadata=protocol.metadata)],
    )


def sent(outcome: machine.MemberOutcome[Timer]) -> Message:
    (message,) = (each.message for each in outcome.actions if isinstance(each, machine.Send))
    return message


@pytest.mark.parametrize("event", [machine.Connected, machine.Disconnected])
def test_result_of_a_connect_before_the_session_end_is_ignored(event: type[machine.Event]) -> None:
    """The member was stopped meanwhile. It connects again, and must not do so twice."""
    member = member_with_partitions()
    outcome = member.handle(event(at_ms=SETTINGS.session_timeout_ms))
    assert [type(each) for each in outcome.actions] == [machine.Disconnect, machine.Connect]
    assert (Timer.RETRY, SETTINGS.session_timeout_ms + 100) not in outcome.timers
    assert member.state is MemberState.CONNECTING
    assert not member.owned


def test_member_that_is_closed_while_it_commits_leaves_without_joining() -> None:
    member = member_with_partitions()
    member.handle(machine.Connected(at_ms=200))
    member.handle(machine.ResponseReceived(at_ms=200, message=HeartbeatResponse(error_code=0)))
    member.handle(machine.MetadataChanged(at_ms=300, topics={"t": 2}))
    positions = {TopicPartition("t", 0): 7}
    member.handle(machine.PositionsTaken(at_ms=300, positions=positions))
    member.handle(machine.LeaveRequested(at_ms=301))
    response = OffsetCommitResponse(topics=[])
    outcome = member.handle(machine.ResponseReceived(at_ms=302, message=response))
    assert isinstance(sent(outcome), LeaveGroupRequest)
    assert member.state is MemberState.LEAVING


def test_member_that_is_closed_after_its_session_stops_without_leaving() -> None:
    member = member_with_partitions()
    outcome = member.handle(machine.LeaveRequested(at_ms=SETTINGS.session_timeout_ms))
    assert not any(isinstance(each, machine.Send) for each in outcome.actions)
    assert member.state is MemberState.STOPPED
