"""Reactions of a member with the consumer group protocol, against the real coordinator."""

from __future__ import annotations

import pytest

from partage.member import events, outcome
from partage.member.consumer_group.events import ConsumerHeartbeatResponseReceived
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
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


ERRORS = [error for error in ErrorCode if error is not ErrorCode.NONE]

#: Each error, and the reaction of Kafka's consumer (`AbstractHeartbeatRequestManager` and
#: `ConsumerHeartbeatRequestManager` of 4.3). It fails after the last two errors (docs/members.md).
HEARTBEAT_REACTIONS = {
    "COORDINATOR_LOAD_IN_PROGRESS": "retry",
    "COORDINATOR_NOT_AVAILABLE": "find coordinator",
    "NOT_COORDINATOR": "find coordinator",
    "UNKNOWN_MEMBER_ID": "join again",
    "FENCED_MEMBER_EPOCH": "join again",
    "TOPIC_AUTHORIZATION_FAILED": "report and retry",
    "GROUP_AUTHORIZATION_FAILED": "fail",
    "INVALID_REQUEST": "fail",
    "GROUP_MAX_SIZE_REACHED": "fail",
    "FENCED_INSTANCE_ID": "fail",
    "UNRELEASED_INSTANCE_ID": "fail",
    "UNSUPPORTED_ASSIGNOR": "fail",
    "UNSUPPORTED_VERSION": "fail",
    "INVALID_REGULAR_EXPRESSION": "fail",
    "REQUEST_TIMED_OUT": "retry",
    "GROUP_ID_NOT_FOUND": "join again",
}
#: To a heartbeat that joins. The group has another protocol, and the broker does not convert it.
JOIN_REACTIONS = {**HEARTBEAT_REACTIONS, "GROUP_ID_NOT_FOUND": "fail"}

REACTION_CASES = [
    (is_joining, error, reactions.get(error.name, "fail"))
    for is_joining, reactions in ((True, JOIN_REACTIONS), (False, HEARTBEAT_REACTIONS))
    for error in ERRORS
]


@pytest.mark.parametrize(
    ("is_joining", "error", "reaction"),
    REACTION_CASES,
    ids=[f"{'join' if case[0] else 'heartbeat'}-{case[1].name}" for case in REACTION_CASES],
)
def test_heartbeat_reactions_match_the_table(
    is_joining: bool, error: ErrorCode, reaction: str
) -> None:
    if is_joining:
        node = GroupWithMembers(A=None)["A"]
        node.subscribe("ta")
        node.poll()
        node.find()
    else:
        node = group_of(A=None)["A"]
        next_heartbeat(node)
    epoch, owned, sent = node.member.epoch, node.member.owned, heartbeats(node)[-1]
    node.deliver_request()
    node.actions.clear()
    node.deliver_response(error)
    reports = [each for each in node.actions if isinstance(each, outcome.ReportProblem)]
    assert bool(reports) == (reaction == "report and retry")
    assert (node.member.state is ConsumerMemberState.FATAL) == (reaction == "fail")
    disconnects = [each for each in node.actions if isinstance(each, outcome.Disconnect)]
    assert bool(disconnects) == (reaction == "find coordinator")
    match reaction:
        case "retry" | "report and retry":
            assert node.member.owned == owned
            check_next_is_full(node, sent.member_id, epoch)
        case "find coordinator":
            assert node.member.owned == owned
            node.group.advance(1_000)
            assert isinstance(node.actions[-1], outcome.FindCoordinator)
        case "join again":
            node.complete_callback()
            assert not node.member.owned
            assert callbacks(node) == ([("lost", len(owned))] if owned else [])
            check_next_is_full(node, sent.member_id, 0)
        case "fail":
            node.complete_callback()
            assert not node.member.owned
            assert not node.timers.armed
            node.subscribe("ta")
            node.exchange()
            assert node.member.state is not ConsumerMemberState.FATAL
        case other:
            raise AssertionError(other)


def check_next_is_full(node: MemberNode, member_id: str, epoch: int) -> None:
    """The member sends a heartbeat with all fields within a second."""
    node.group.advance(1_000)
    sent = heartbeats(node)[-1]
    assert (sent.member_id, sent.member_epoch) == (member_id, epoch)
    assert sent.subscribed_topics is not None
    assert sent.owned is not None


#: Kafka's consumer ends after these; it repeats a lookup that failed for another reason.
FATAL_LOOKUP_ERRORS = {"GROUP_AUTHORIZATION_FAILED", "INVALID_GROUP_ID", "UNSUPPORTED_VERSION"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.name)
def test_failed_lookup_is_fatal_or_repeated(error: ErrorCode) -> None:
    node = GroupWithMembers(A=None)["A"]
    node.subscribe("ta")
    node.poll()
    serial = node.lookups.pop()
    node.handle(events.CoordinatorNotFound(at_ms=node.now_ms, serial=serial, error=error))
    is_fatal = node.member.state is ConsumerMemberState.FATAL
    assert is_fatal == (error.name in FATAL_LOOKUP_ERRORS)
    node.group.advance(1_000)
    assert bool(node.lookups) == (not is_fatal)


def reject_commit(node: MemberNode, error: ErrorCode, *, epochs_ago: int = 0) -> None:
    """Reject a commit of the current epoch, or of an earlier one."""
    identity = node.member.commit_identity
    assert identity is not None
    node.actions.clear()
    node.handle(
        events.CommitRejected(
            at_ms=node.now_ms,
            generation=identity.generation - epochs_ago,
            member_id=identity.member_id,
            error=error,
        )
    )


#: Errors of a commit after which the member may have been removed, or has an old epoch.
CHECKED_COMMIT_ERRORS = {
    "STALE_MEMBER_EPOCH",
    "UNKNOWN_MEMBER_ID",
    "FENCED_INSTANCE_ID",
    "GROUP_ID_NOT_FOUND",
}
#: After these, Kafka's consumer looks up the coordinator (`CommitRequestManager`).
COORDINATOR_ERRORS = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REQUEST_TIMED_OUT"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.name)
def test_rejected_commit_checks_the_membership_at_once(error: ErrorCode) -> None:
    node = group_of(A=None)["A"]
    reject_commit(node, error, epochs_ago=1)
    assert not node.actions
    reject_commit(node, error)
    assert len(heartbeats(node)) == (error.name in CHECKED_COMMIT_ERRORS)
    disconnects = [each for each in node.actions if isinstance(each, outcome.Disconnect)]
    assert len(disconnects) == (error.name in COORDINATOR_ERRORS)
    assert node.member.state is ConsumerMemberState.STABLE
    assert node.member.owned == EVERYTHING


def test_refused_subscription_is_noted_until_the_next_accepted_heartbeat() -> None:
    node = group_of(A=None)["A"]
    next_heartbeat(node)
    node.deliver_request()
    node.deliver_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert node.member.is_subscription_refused
    node.group.advance(1_000)
    node.exchange()
    assert not node.member.is_subscription_refused


@pytest.mark.parametrize(
    ("sent_ms", "interval_ms"), [(-1, 5_000), (0, 5_000), (1, 1), (9_000, 9_000)]
)
def test_interval_of_a_response_is_used_if_it_is_positive(sent_ms: int, interval_ms: int) -> None:
    node = group_of(A=None)["A"]
    request = next_heartbeat(node)
    node.requests.clear()
    node.handle(
        ConsumerHeartbeatResponseReceived(
            at_ms=node.now_ms,
            serial=request.serial,
            error=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=sent_ms,
        )
    )
    assert node.timers.armed[MemberTimer.HEARTBEAT] == node.now_ms + interval_ms


@pytest.mark.parametrize("instance_id", [None, "i"], ids=["dynamic", "static"])
@pytest.mark.parametrize(
    ("way_out", "error"),
    [
        ("leave", None),
        ("error", ErrorCode.INVALID_REQUEST),
        ("error", ErrorCode.UNRELEASED_INSTANCE_ID),  # the member sends no leave
        ("error during the callback", ErrorCode.INVALID_REQUEST),
    ],
)
def test_dynamic_member_starts_again_with_another_member_id(
    way_out: str, error: ErrorCode | None, instance_id: str | None
) -> None:
    """A late request of the former membership cannot remove the new one."""
    node = group_of(A=instance_id)["A"]
    before = node.member.member_id
    if way_out == "leave":
        node.leave()
        node.exchange()
    else:
        next_heartbeat(node)
        if way_out != "error":
            node.leave()
        node.deliver_request()
        node.deliver_response(error)
        node.exchange()
    assert not node.member.is_in_group
    sent = len(heartbeats(node))
    node.subscribe("ta", "tb")
    node.exchange()
    used = {each.member_id for each in heartbeats(node)[sent:]}
    assert used == {node.member.member_id}
    assert (before in used) == (instance_id is not None)
    assert node.member.is_in_group
