"""Reactions of a member with the consumer group protocol, against the real coordinator."""

from __future__ import annotations

import pytest

from partage.member import events, outcome
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
from partage.member.consumer_group.reactions import (
    CONSUMER_REACTIONS,
    ConsumerGroupRequest,
    HeartbeatReaction,
    heartbeat_reaction,
)
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

from .group_with_members import GroupWithMembers, MemberNode, topic_id

EVERYTHING = {("ta", 0), ("ta", 1), ("ta", 2), ("ta", 3), ("tb", 0)}


def group_of(**instances: str | None) -> GroupWithMembers:
    """Return a group whose first member owns all partitions."""
    group = GroupWithMembers(**instances)
    first = next(iter(group.nodes.values()))
    first.subscribe("ta", "tb")
    first.exchange()
    assert first.member.owned == EVERYTHING
    assert first.member.state is ConsumerMemberState.STABLE
    return group


def heartbeats(node: MemberNode) -> list[SendConsumerHeartbeat]:
    """Return all heartbeats of the member."""
    return [each for each in node.actions if isinstance(each, SendConsumerHeartbeat)]


def callbacks(node: MemberNode) -> list[tuple[str, int]]:
    """Return the name of each callback, with its number of partitions."""
    calls = [each for each in node.actions if isinstance(each, outcome.CallListener)]
    return [(str(each.callback), len(each.partitions)) for each in calls]


def next_heartbeat(node: MemberNode) -> SendConsumerHeartbeat:
    """Let the interval pass, and return the heartbeat that the member sends."""
    node.group.advance(5_000)
    return heartbeats(node)[-1]


def test_join_sends_all_fields_and_later_heartbeats_none() -> None:
    node = group_of(A="i")["A"]
    join, acknowledgement = heartbeats(node)[0], heartbeats(node)[-1]
    assert (join.member_epoch, join.owned, join.subscribed_topics) == (0, {}, ("ta", "tb"))
    assert join.rebalance_timeout_ms == 60_000
    assert acknowledgement.owned == {topic_id("ta"): (0, 1, 2, 3), topic_id("tb"): (0,)}
    later = next_heartbeat(node)
    assert (later.owned, later.subscribed_topics, later.rebalance_timeout_ms) == (None, None, -1)
    assert (later.instance_id, later.member_epoch) == ("i", node.member.epoch)
    assert callbacks(node) == [("assigned", 5)]


def test_returning_static_member_without_a_regex_removes_the_old_one() -> None:
    """The coordinator keeps the subscription of a static member that leaves for a while."""
    group = GroupWithMembers(A="i", B="i")
    first, second = group["A"], group["B"]
    first.subscribe(regex="t.*")
    first.exchange()
    first.leave()
    first.exchange()
    second.subscribe("tb")
    second.exchange()
    assert heartbeats(second)[0].subscribed_regex == ""
    next_heartbeat(second)
    second.exchange()
    assert second.member.owned == {("tb", 0)}


def test_partition_moves_only_after_the_callback_and_its_confirmation() -> None:
    group = group_of(A=None, B=None)
    first, second = group["A"], group["B"]
    second.subscribe("ta")
    second.exchange()
    assert not second.member.owned
    next_heartbeat(first)
    first.deliver_request()
    first.deliver_response()
    kept = first.member.deliverable
    assert kept < EVERYTHING == first.member.owned
    group.advance(5_000)
    second.exchange()
    assert not second.member.owned, "the callback runs"
    first.complete_callback()
    group.advance(5_000)
    second.exchange()
    assert not second.member.owned, "the confirmation is on its way"
    first.exchange()
    group.advance(5_000)
    second.exchange()
    assert second.member.owned == EVERYTHING - kept
    assert ("revoked", len(second.member.owned)) in callbacks(first)


def test_assignment_that_arrives_before_acknowledgement_replaces_it() -> None:
    group = GroupWithMembers(A=None, B=None)
    first, second = group["A"], group["B"]
    first.subscribe("ta", "tb")
    first.poll()
    first.find()
    for _ in range(2):
        first.deliver_request()
        first.deliver_response()
    first.resolve()
    first.deliver_request()
    first.deliver_response()
    second.subscribe("ta", "tb")
    second.exchange()
    group.advance(5_000)
    first.complete_callback()
    assert first.member.state is ConsumerMemberState.ACKNOWLEDGING
    first.deliver_request()
    first.deliver_response()
    assert callbacks(first)[-1][0] == "revoked"
    assert not first.requests, "there is nothing to report until the callback returns"
    first.complete_callback()
    assert first.requests[-1].owned is not None


def test_lost_connection_makes_the_next_heartbeat_full() -> None:
    node = group_of(A=None)["A"]
    node.lose_connection()
    node.group.advance(1_000)
    node.find()
    again = heartbeats(node)[-1]
    assert (again.member_epoch, again.subscribed_topics) == (node.member.epoch, ("ta", "tb"))
    assert again.owned is not None
    node.exchange()
    assert callbacks(node) == [("assigned", 5)]


def test_partitions_of_an_open_callback_are_reported_after_a_lost_connection() -> None:
    group = group_of(A=None, B=None)
    first, second = group["A"], group["B"]
    second.subscribe("ta", "tb")
    second.exchange()
    next_heartbeat(first)
    first.deliver_request()
    first.deliver_response()
    assert first.member.deliverable < EVERYTHING
    first.lose_connection()
    group.advance(1_000)
    first.find()
    owned = heartbeats(first)[-1].owned
    assert owned == {topic_id("ta"): (0, 1, 2, 3), topic_id("tb"): (0,)}


def test_loss_of_a_former_connection_changes_nothing() -> None:
    node = group_of(A=None)["A"]
    former = node.member.link.coordinator_serial
    assert former is not None
    node.lose_connection()
    node.group.advance(1_000)
    node.find()
    node.exchange()
    found = node.member.link.coordinator_serial
    node.handle(events.CoordinatorLost(at_ms=node.now_ms, serial=former))
    node.handle(events.CoordinatorNotFound(at_ms=node.now_ms, serial=former))
    assert found is not None
    assert node.member.link.coordinator_serial == found
    assert next_heartbeat(node).subscribed_topics is None


def test_subscription_changes_are_sent_at_once() -> None:
    node = group_of(A=None)["A"]
    node.subscribe("ta", regex="x.*")
    changed = heartbeats(node)[-1]
    assert (changed.subscribed_topics, changed.subscribed_regex) == (("ta",), "x.*")
    node.exchange()
    node.subscribe("ta")
    assert heartbeats(node)[-1].subscribed_regex == ""
    assert heartbeats(node)[-1].subscribed_topics is None


def test_regex_of_a_heartbeat_without_response_is_removed() -> None:
    """The coordinator may have stored a regular expression although its response was lost."""
    group = group_of(A=None)
    node = group["A"]
    node.subscribe("ta", regex="t.*")
    node.lose_connection()
    node.subscribe("ta")
    group.advance(1_000)
    node.find()
    assert heartbeats(node)[-1].subscribed_regex == ""
    node.exchange()
    assert next_heartbeat(node).subscribed_regex is None


def test_partition_of_an_unsubscribed_topic_is_not_delivered() -> None:
    node = group_of(A=None)["A"]
    node.subscribe("tb")
    assert node.member.deliverable == {("tb", 0)}


def test_unknown_topic_id_waits_for_metadata() -> None:
    group = GroupWithMembers(A=None)
    node = group["A"]
    node.subscribe("ta", "tb")
    node.poll()
    node.find()
    for _ in range(2):
        node.deliver_request()
        node.deliver_response()
    node.resolve(knows=lambda name: name == "tb")
    assert node.member.deliverable == frozenset(), "the listener runs"
    node.complete_callback()
    assert node.member.deliverable == {("tb", 0)}
    assert node.member.state is not ConsumerMemberState.STABLE
    group.advance(1_000)
    node.exchange()
    assert node.member.deliverable == EVERYTHING
    assert callbacks(node) == [("assigned", 1), ("assigned", 4)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_fenced_member_joins_again_after_the_callback(error: ErrorCode) -> None:
    node = group_of(A=None)["A"]
    member_id = node.member.member_id
    next_heartbeat(node)
    node.deliver_request()
    node.deliver_response(error)
    assert not node.member.deliverable
    assert node.member.commit_identity is None
    assert not node.requests, "the listener runs"
    node.complete_callback()
    (join,) = node.requests
    assert (join.member_id, join.member_epoch, join.owned) == (member_id, 0, {})
    node.exchange()
    assert callbacks(node) == [("assigned", 5), ("lost", 5), ("assigned", 5)]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leave_revokes_and_sends_the_epoch_of_the_member(
    instance_id: str | None, epoch: int
) -> None:
    node = group_of(A=instance_id)["A"]
    node.leave()
    assert not node.member.deliverable
    assert not node.requests
    node.complete_callback()
    assert node.requests[-1].member_epoch == epoch
    node.exchange()
    assert callbacks(node)[-1] == ("revoked", 5)
    assert isinstance(node.actions[-1], outcome.LeftGroup)
    assert not node.timers.armed


def test_poll_timeout_leaves_and_joins_again_at_the_next_poll() -> None:
    node = group_of(A=None)["A"]
    before = node.member.member_id
    node.poll(is_in_poll=False)
    for _ in range(12):
        node.group.advance(5_000)
        node.deliver_request()
        node.deliver_response()
    assert node.member.state is ConsumerMemberState.STALE
    assert heartbeats(node)[-1].member_epoch == -1
    node.complete_callback()
    assert node.member.state is ConsumerMemberState.STALE
    node.exchange()
    assert node.member.owned == EVERYTHING
    assert node.member.member_id != before


def test_session_without_response_delivers_nothing() -> None:
    node = group_of(A=None)["A"]
    node.group.advance(44_999)
    assert node.member.deliverable
    node.group.advance(1)
    assert not node.member.deliverable
    assert node.member.owned == EVERYTHING
    node.group.advance(5_000)
    node.exchange()
    node.group.settle()
    assert node.group.is_settled


def test_repeated_revocation_ends_the_session_at_the_rebalance_timeout() -> None:
    """The coordinator removes a member that does not revoke, even while it sends heartbeats."""
    group = group_of(A=None, B=None)
    first, second = group["A"], group["B"]
    second.subscribe("ta", "tb")
    second.exchange()
    for _ in range(11):
        group.advance(5_000)
        first.deliver_request()
        first.deliver_response()
    assert first.member.is_in_group
    group.advance(5_000)
    assert not first.member.deliverable


FATAL_CASES = [
    (request, error)
    for request in (ConsumerGroupRequest.JOIN, ConsumerGroupRequest.HEARTBEAT)
    for error in (*CONSUMER_REACTIONS[request], ErrorCode.UNKNOWN_SERVER_ERROR)
    if error is not ErrorCode.NONE
]


@pytest.mark.parametrize(("request_", "error"), FATAL_CASES, ids=lambda e: getattr(e, "name", e))
def test_heartbeat_reactions_match_the_table(
    request_: ConsumerGroupRequest, error: ErrorCode
) -> None:
    if request_ is ConsumerGroupRequest.JOIN:
        node = GroupWithMembers(A=None)["A"]
        node.subscribe("ta")
        node.poll()
        node.find()
    else:
        node = group_of(A=None)["A"]
        next_heartbeat(node)
    node.deliver_request()
    node.actions.clear()
    node.deliver_response(error)
    match heartbeat_reaction(request_, error):
        case HeartbeatReaction.RETRY | HeartbeatReaction.REPORT as reaction:
            reports = [each for each in node.actions if isinstance(each, outcome.ReportProblem)]
            assert bool(reports) == (reaction is HeartbeatReaction.REPORT)
            assert MemberTimer.RETRY in node.timers.armed
            node.group.advance(1_000)
            assert heartbeats(node)[-1].subscribed_topics is not None
        case HeartbeatReaction.FIND_COORDINATOR:
            assert isinstance(node.actions[0], outcome.Disconnect)
            node.group.advance(1_000)
            assert isinstance(node.actions[-1], outcome.FindCoordinator)
        case HeartbeatReaction.LOSE_MEMBERSHIP:
            assert node.member.state is ConsumerMemberState.FENCED
        case HeartbeatReaction.FAIL:
            assert node.member.state is ConsumerMemberState.FATAL
            node.complete_callback()
            assert not node.member.owned
            assert not node.timers.armed
            node.subscribe("ta")
            node.exchange()
            assert node.member.state is not ConsumerMemberState.FATAL
        case other:
            raise AssertionError(other)


def test_rejected_commit_checks_the_membership_at_once() -> None:
    node = group_of(A=None)["A"]
    identity = node.member.commit_identity
    assert identity is not None
    for generation, count in ((identity.generation - 1, 0), (identity.generation, 1)):
        node.actions.clear()
        node.handle(
            events.CommitRejected(
                at_ms=node.now_ms,
                generation=generation,
                member_id=identity.member_id,
                error=ErrorCode.STALE_MEMBER_EPOCH,
            )
        )
        assert len(heartbeats(node)) == count


def test_refused_subscription_is_noted_until_the_next_accepted_heartbeat() -> None:
    node = group_of(A=None)["A"]
    next_heartbeat(node)
    node.deliver_request()
    node.deliver_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert node.member.is_subscription_refused
    node.group.advance(1_000)
    node.exchange()
    assert not node.member.is_subscription_refused
