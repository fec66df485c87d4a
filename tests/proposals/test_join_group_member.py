"""The member of the designs with JoinGroup: events that cross."""

from __future__ import annotations

import pytest

from partage.assignors import RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.join_group.member import DesignMemberState, Timer
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.multi_assignor.messages import (
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from partage.wire.types import Message

SETTINGS = DesignMemberSettings(group_id="g")


def joining_member(topics: dict[str, int] | None = None) -> tuple[MultiAssignorMember, Message]:
    """Return a member that has sent JoinGroup at time 0, and the response that gives it all."""
    options = MultiAssignorOptions(assignors=(RoundRobin(),), checks_metadata=False)
    member = MultiAssignorMember(SETTINGS, frozenset({"t"}), options)
    member.handle(machine.Started(at_ms=0))
    member.handle(machine.Connected(at_ms=0))
    topics = {"t": 1} if topics is None else topics
    outcome = member.handle(machine.MetadataFetched(at_ms=0, topics=topics))
    request = sent(outcome)
    assert isinstance(request, JoinGroupRequest)
    return member, join_response(request)


def member_with_partitions() -> MultiAssignorMember:
    """Return a member that owns a partition, and whose connection was lost since."""
    member, response = joining_member()
    member.handle(machine.ResponseReceived(at_ms=0, message=response))
    assert member.owned == {TopicPartition("t", 0)}
    member.handle(machine.Disconnected(at_ms=1))
    member.handle(machine.TimerFired(at_ms=101, key=Timer.RETRY))
    return member


def reconnect(member: MultiAssignorMember) -> Message:
    """Connect again, answer the heartbeat, and return the next request."""
    assert isinstance(sent(member.handle(machine.Connected(at_ms=200))), HeartbeatRequest)
    response = HeartbeatResponse(error_code=0)
    return sent(member.handle(machine.ResponseReceived(at_ms=200, message=response)))


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
    assert member.state is DesignMemberState.CONNECTING
    assert not member.owned


def test_member_reconnected_before_it_had_its_offsets_fetches_them() -> None:
    """A heartbeat comes first: the coordinator may not know the member."""
    request = reconnect(member_with_partitions())
    assert isinstance(request, OffsetFetchRequest)
    assert request.topics is not None
    assert [(each.name, each.partition_indexes) for each in request.topics] == [("t", [0])]


def test_member_with_another_subscription_stops_before_it_fetches_metadata() -> None:
    """It keeps reading while it has no connection, and rebalances over the next one."""
    member = member_with_partitions()
    reconnect(member)
    member.handle(machine.ResponseReceived(at_ms=200, message=OffsetFetchResponse(topics=[])))
    member.handle(machine.Disconnected(at_ms=300))
    outcome = member.handle(machine.SubscriptionChanged(at_ms=310, topics=frozenset({"t", "u"})))
    assert outcome.actions == []
    member.handle(machine.TimerFired(at_ms=400, key=Timer.RETRY))
    outcome = member.handle(machine.Connected(at_ms=410))
    assert outcome.actions == [machine.StopReading(), machine.FetchMetadata()]


def test_member_that_is_closed_while_it_commits_leaves_without_joining() -> None:
    member = member_with_partitions()
    reconnect(member)
    response: Message = OffsetFetchResponse(topics=[])
    member.handle(machine.ResponseReceived(at_ms=200, message=response))
    member.handle(machine.PartitionCountsChanged(at_ms=300, topics={"t": 2}))
    positions = {TopicPartition("t", 0): 7}
    member.handle(machine.PositionsTaken(at_ms=300, positions=positions))
    member.handle(machine.LeaveRequested(at_ms=301))
    response = OffsetCommitResponse(topics=[])
    outcome = member.handle(machine.ResponseReceived(at_ms=302, message=response))
    assert isinstance(sent(outcome), LeaveGroupRequest)
    assert member.state is DesignMemberState.LEAVING


def test_member_that_is_closed_after_its_session_stops_without_leaving() -> None:
    member = member_with_partitions()
    outcome = member.handle(machine.LeaveRequested(at_ms=SETTINGS.session_timeout_ms))
    assert not any(isinstance(each, machine.Send) for each in outcome.actions)
    assert member.state is DesignMemberState.STOPPED


class TestRequestTimeout:
    def test_member_whose_join_gets_no_response_connects_again(self) -> None:
        """The machine of the coordinator was lost, and closed no connection."""
        settings = DesignMemberSettings(group_id="g", join_timeout_ms=60_000)
        options = MultiAssignorOptions(assignors=(RoundRobin(),))
        member = MultiAssignorMember(settings, frozenset({"t"}), options)
        member.handle(machine.Started(at_ms=0))
        member.handle(machine.Connected(at_ms=0))
        outcome = member.handle(machine.MetadataFetched(at_ms=100, topics={"t": 1}))
        assert dict(outcome.timers)[Timer.REQUEST] == 60_100
        outcome = member.handle(machine.TimerFired(at_ms=60_100, key=Timer.REQUEST))
        assert outcome.actions == [machine.Disconnect()]
        outcome = member.handle(machine.TimerFired(at_ms=60_200, key=Timer.RETRY))
        assert outcome.actions == [machine.Connect()]

    def test_member_without_partitions_notices_a_lost_coordinator(self) -> None:
        member, response = joining_member(topics={})
        member.handle(machine.ResponseReceived(at_ms=0, message=response))
        assert (member.state, member.owned) == (DesignMemberState.STABLE, frozenset())
        outcome = member.handle(machine.TimerFired(at_ms=3_000, key=Timer.HEARTBEAT))
        assert isinstance(sent(outcome), HeartbeatRequest)
        deadline_ms = dict(outcome.timers)[Timer.REQUEST]
        assert deadline_ms == 3_000 + SETTINGS.session_timeout_ms
        outcome = member.handle(machine.TimerFired(at_ms=deadline_ms, key=Timer.REQUEST))
        assert outcome.actions == [machine.Disconnect()]

    def test_response_cancels_the_timeout(self) -> None:
        member, response = joining_member(topics={})
        outcome = member.handle(machine.ResponseReceived(at_ms=0, message=response))
        assert (Timer.REQUEST, None) in outcome.timers


class TestStoppedProcess:
    """The process of the member was stopped, and continues."""

    def test_old_join_response_starts_no_reader(self) -> None:
        """The response arrived while the process was stopped. Its session is over since."""
        member, response = joining_member()
        now_ms = SETTINGS.session_timeout_ms
        member.handle(machine.TimerFired(at_ms=now_ms, key=Timer.STALL))
        outcome = member.handle(machine.ResponseReceived(at_ms=now_ms, message=response))
        assert outcome.actions == [machine.Disconnect(), machine.Connect()]
        assert (member.state, member.owned) == (DesignMemberState.CONNECTING, frozenset())

    def test_session_counts_from_before_the_stop(self) -> None:
        member, response = joining_member()
        member.handle(machine.TimerFired(at_ms=1_500, key=Timer.STALL))
        member.handle(machine.TimerFired(at_ms=31_500, key=Timer.STALL))  # it was stopped for 30 s
        member.handle(machine.ResponseReceived(at_ms=31_500, message=response))
        assert not member.is_session_over(1_499 + SETTINGS.session_timeout_ms)
        assert member.is_session_over(1_500 + SETTINGS.session_timeout_ms)

    def test_join_that_takes_longer_than_a_session_starts_a_reader(self) -> None:
        member, response = joining_member()
        interval_ms = SETTINGS.session_timeout_ms // 10
        timers: dict[Timer, int | None] = {Timer.STALL: interval_ms}
        for number in range(1, 61):
            assert timers[Timer.STALL] == number * interval_ms
            timers = dict(
                member.handle(
                    machine.TimerFired(at_ms=number * interval_ms, key=Timer.STALL)
                ).timers
            )
        outcome = member.handle(
            machine.ResponseReceived(at_ms=61 * interval_ms - 1, message=response)
        )
        assert isinstance(sent(outcome), OffsetFetchRequest)
        assert dict(outcome.timers)[Timer.SESSION] == 59 * interval_ms + SETTINGS.session_timeout_ms

    def test_reader_stops_before_anything_else_when_the_session_is_over(self) -> None:
        member, response = joining_member()
        member.handle(machine.ResponseReceived(at_ms=0, message=response))
        member.handle(machine.ResponseReceived(at_ms=1, message=OffsetFetchResponse(topics=[])))
        assert member.is_reading
        outcome = member.handle(
            machine.TimerFired(at_ms=SETTINGS.session_timeout_ms, key=Timer.HEARTBEAT)
        )
        assert outcome.actions[0] == machine.StopReading()
        assert not any(isinstance(each, machine.Send) for each in outcome.actions)


class TestPattern:
    def test_new_topic_that_matches_starts_a_rebalance(self) -> None:
        member = member_with_pattern("fli.*")
        outcome = member.handle(
            machine.PartitionCountsChanged(at_ms=10, topics={"t": 1, "flights": 2})
        )
        assert isinstance(sent(outcome), JoinGroupRequest)

    def test_new_topic_that_does_not_match_changes_nothing(self) -> None:
        member = member_with_pattern("fli.*")
        outcome = member.handle(machine.PartitionCountsChanged(at_ms=10, topics={"t": 1, "u": 2}))
        assert outcome.actions == []


def member_with_pattern(text: str) -> MultiAssignorMember:
    """Return a member whose pattern matches no topic so far, in a stable group."""
    options = MultiAssignorOptions(
        assignors=(RoundRobin(),), checks_metadata=False, pattern=TopicPattern(text)
    )
    member = MultiAssignorMember(SETTINGS, frozenset(), options)
    member.handle(machine.Started(at_ms=0))
    member.handle(machine.Connected(at_ms=0))
    request = sent(member.handle(machine.MetadataFetched(at_ms=0, topics={"t": 1})))
    assert isinstance(request, JoinGroupRequest)
    member.handle(machine.ResponseReceived(at_ms=0, message=join_response(request)))
    assert member.is_stable
    return member
