"""Leaves of a member with the consumer group protocol: errors, lost connections and timeouts."""

from __future__ import annotations

import pytest

from partage.member import events, outcome
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

from .group_with_members import GroupWithMembers, MemberNode
from .test_member import EVERYTHING, callbacks, group_of, heartbeats, next_heartbeat

RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
]


def drain(node: MemberNode) -> None:
    """Begin to drain while the user is not in poll."""
    node.poll(is_in_poll=False)
    node.drain()


def send_heartbeats(node: MemberNode, times: int) -> None:
    """Let heartbeats be accepted, one in each 5 s."""
    for _ in range(times):
        node.group.advance(5_000)
        node.deliver_request()
        node.deliver_response()


def test_drain_without_polls_leaves_at_the_poll_timeout() -> None:
    group = group_of(A=None, B=None)
    node, other = group["A"], group["B"]
    drain(node)
    send_heartbeats(node, 11)
    assert node.member.is_in_group
    assert MemberTimer.POLL in node.timers.armed
    send_heartbeats(node, 1)
    assert heartbeats(node)[-1].member_epoch == -1
    assert not node.member.is_in_group
    assert node.member.is_release_lost
    other.subscribe("ta", "tb")
    other.exchange()
    assert other.member.owned == EVERYTHING
    sent = len(heartbeats(node))
    node.complete_callback()
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert isinstance(node.actions[-1], outcome.LeftGroup)
    assert not node.timers.armed
    assert len(heartbeats(node)) == sent, "the member has left already"


def test_drain_with_polls_keeps_partitions_until_the_callback_returns() -> None:
    node = group_of(A=None)["A"]
    drain(node)
    send_heartbeats(node, 11)
    node.poll()
    node.poll(is_in_poll=False)
    send_heartbeats(node, 11)
    assert node.member.is_in_group
    assert not node.member.is_release_lost


def test_drain_without_polls_and_coordinator_leaves_when_found() -> None:
    node = group_of(A=None)["A"]
    drain(node)
    send_heartbeats(node, 11)
    node.lose_connection()
    node.group.advance(5_000)
    assert not node.member.is_in_group
    node.find()
    assert node.requests[-1].member_epoch == -1
    assert node.member.state is ConsumerMemberState.PREPARE_LEAVING


@pytest.mark.parametrize("error", RETRIED, ids=lambda error: error.name)
def test_retriable_error_while_revoking_backs_off(error: ErrorCode) -> None:
    node = group_of(A=None)["A"]
    node.leave()
    next_heartbeat(node)
    node.deliver_request()
    node.actions.clear()
    node.deliver_response(error)
    assert not heartbeats(node)
    assert not [each for each in node.actions if isinstance(each, outcome.ReportProblem)]
    assert MemberTimer.RETRY in node.timers.armed
    node.group.advance(1_000)
    node.find()
    assert heartbeats(node)[-1].subscribed_topics is not None


def test_fence_while_revoking_loses_the_partitions() -> None:
    node = group_of(A=None)["A"]
    node.leave()
    next_heartbeat(node)
    node.deliver_request()
    node.deliver_response(ErrorCode.UNKNOWN_MEMBER_ID)
    assert node.member.is_release_lost
    node.lose_connection()
    node.group.advance(10_000)
    assert not node.lookups, "the coordinator has no member to remove"
    node.complete_callback()
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert not node.member.is_release_lost
    assert callbacks(node)[-1] == ("revoked", 5)


def test_leave_without_coordinator_is_sent_when_found() -> None:
    group = group_of(A=None, B=None)
    node, other = group["A"], group["B"]
    node.lose_connection()
    node.leave()
    node.complete_callback()
    assert node.member.state is ConsumerMemberState.LEAVING
    group.advance(1_000)
    node.find()
    assert heartbeats(node)[-1].member_epoch == -1
    node.exchange()
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert not node.timers.armed
    other.subscribe("ta", "tb")
    other.exchange()
    assert other.member.owned == EVERYTHING


def test_revoking_member_without_coordinator_keeps_its_session() -> None:
    node = group_of(A=None)["A"]
    node.leave()
    node.lose_connection()
    node.group.advance(1_000)
    node.find()
    assert heartbeats(node)[-1].member_epoch == node.member.epoch > 0


def test_leave_without_coordinator_ends_at_the_request_timeout() -> None:
    node = group_of(A=None)["A"]
    node.lose_connection()
    node.leave()
    node.complete_callback()
    timeout_ms = node.member.settings.request_timeout_ms
    node.group.advance(timeout_ms - 1)
    assert node.member.state is ConsumerMemberState.LEAVING
    node.group.advance(1)
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert not node.timers.armed


@pytest.mark.parametrize("error", [RETRIED[0], RETRIED[2]], ids=lambda error: error.name)
def test_rejected_leave_is_sent_again_until_the_request_timeout(error: ErrorCode) -> None:
    node = group_of(A=None)["A"]
    node.leave()
    node.complete_callback()
    deadline_ms = node.timers.armed[MemberTimer.REQUEST]
    for _ in range(3):
        sent = len(heartbeats(node))
        node.deliver_request()
        node.deliver_response(error)
        assert len(heartbeats(node)) == sent, "the member backs off"
        node.group.advance(1_000)
        node.find()
        assert len(heartbeats(node)) == sent + 1
        assert heartbeats(node)[-1].member_epoch == -1
    assert node.timers.armed[MemberTimer.REQUEST] == deadline_ms
    node.group.advance(deadline_ms - node.now_ms)
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert not node.timers.armed


def test_leave_ends_if_the_lookup_is_refused() -> None:
    node = group_of(A=None)["A"]
    node.lose_connection()
    node.leave()
    node.complete_callback()
    node.group.advance(1_000)
    node.handle(
        events.CoordinatorNotFound(
            at_ms=node.now_ms,
            serial=node.lookups[-1],
            error=ErrorCode.GROUP_AUTHORIZATION_FAILED,
        )
    )
    assert node.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert not node.timers.armed


def test_leave_drops_an_acknowledgement_that_waits_for_a_response() -> None:
    node = GroupWithMembers(A=None)["A"]
    node.subscribe("ta", "tb")
    node.poll()
    node.find()
    for _ in range(2):  # the join, and a report without the topics, whose names are not known
        node.deliver_request()
        node.deliver_response()
    next_heartbeat(node)
    node.resolve()
    node.complete_callback()
    assert node.member.state is ConsumerMemberState.ACKNOWLEDGING
    node.leave()
    sent = len(heartbeats(node))
    node.deliver_request()
    node.deliver_response()
    assert len(heartbeats(node)) == sent, "a leaving member reports nothing"
    next_heartbeat(node)
    assert len(heartbeats(node)) == sent + 1
