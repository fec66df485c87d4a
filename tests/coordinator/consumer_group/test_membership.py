"""Joining, reconciliation and leaving, as in Apache Kafka (tests/interop/consumer_groups)."""

from __future__ import annotations

import msgspec
import pytest

from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.events import Leave, LeavingMember
from partage.coordinator.replies import LeaveReply
from partage.coordinator.timers import RebalanceTimer, SessionTimer
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings

from .harness import ConsumerHarness, joining, parts, topic


def test_join_of_first_member_returns_the_whole_assignment() -> None:
    harness = ConsumerHarness()
    reply = harness.join("A", "t")
    assert reply == ConsumerGroupHeartbeatReply(
        member_id="A",
        member_epoch=2,
        heartbeat_interval_ms=5000,
        assignment=parts(t=range(6)),
    )
    assert harness.epochs == ("Stable", 2, 2)


def test_second_member_waits_until_the_first_gives_up_partitions() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    joined = harness.join("B", "t")
    assert (joined.member_epoch, joined.assignment) == (3, {})
    assert harness.epochs == ("Reconciling", 3, 3)
    told = harness.beat("A")
    assert (told.member_epoch, told.assignment) == (2, parts(t=(0, 1, 2)))
    assert RebalanceTimer("g", "A") in harness.armed
    assert harness.beat("A").assignment is None
    assert harness.beat("B").assignment is None
    assert harness.beat("A", owned=parts(t=range(6))).member_epoch == 2
    assert harness.beat("A", owned=parts(t=(0, 1, 2))).member_epoch == 3
    assert RebalanceTimer("g", "A") not in harness.armed
    assert harness.beat("B").assignment == parts(t=(3, 4, 5))
    assert harness.beat("B").assignment is None
    assert harness.epochs == ("Stable", 3, 3)


def test_full_request_returns_the_assignment_again() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    full = {**joining("t"), "owned": parts(t=range(6))}
    assert harness.beat("A", **full).assignment == parts(t=range(6))
    assert harness.beat("A", subscribed_topics=("t",)).assignment is None


def test_heartbeat_with_the_previous_epoch_needs_its_owned_partitions() -> None:
    """The response with the new epoch may have been lost."""
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    assert harness.ask("A", 2, owned=parts(t=(0, 1, 2))).member_epoch == 3
    for owned in (None, parts(t=(0, 5))):
        assert harness.ask("A", 2, owned=owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    reply = harness.ask("A", 1, owned=parts(t=(0,)))
    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert reply.error_message == (
        "The consumer group member has a smaller member epoch (1) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin."
    )
    assert "greater member epoch (9)" in (harness.ask("A", 9).error_message or "")


def test_member_that_leaves_frees_its_partitions_with_a_new_epoch() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    assert harness.leave("A") == ConsumerGroupHeartbeatReply(member_id="A", member_epoch=-1)
    assert harness.epochs == ("Assigning", 4, 3)
    reply = harness.beat("B")
    assert (reply.member_epoch, reply.assignment) == (4, parts(t=range(6)))
    assert harness.leave("X").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_keeps_its_epoch_and_has_no_target() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.leave("A")
    assert harness.epochs == ("Empty", 3, 3)
    assert harness.join("B", "t").member_epoch == 4
    assert not {key for key in harness.armed if key == SessionTimer("g", "A")}


def test_rejoin_with_the_same_member_id_keeps_epoch_and_assignment() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    for _ in range(2):
        again = harness.join("A", "t")
        assert (again.member_epoch, again.assignment) == (2, parts(t=range(6)))


def test_rejoin_of_a_member_that_must_give_up_partitions_gives_them_up() -> None:
    """A member that joins again owns nothing."""
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A")
    again = harness.join("A", "t")
    assert (again.member_epoch, again.assignment) == (3, parts(t=(0, 1, 2)))


def test_join_to_a_full_group_is_refused() -> None:
    settings = ConsumerGroupSettings(members_max=1, assignment_interval_ms=0)
    harness = ConsumerHarness(settings=settings)
    harness.join("A", "t")
    reply = harness.join("B", "t")
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert reply.error_message == (
        "The consumer group has reached its maximum capacity of 1 members."
    )
    assert harness.join("A", "t").error is ErrorCode.NONE


def test_empty_subscription_starts_no_epoch() -> None:
    harness = ConsumerHarness()
    reply = harness.join("A")
    assert (reply.member_epoch, reply.assignment) == (1, {})
    assert harness.epochs == ("Stable", 1, 1)
    assert harness.beat("A", subscribed_topics=("t",)).member_epoch == 2


def test_session_without_heartbeats_expires() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.advance(44_999)
    harness.beat("A")
    harness.advance(44_999)
    assert "A" in harness.group.members
    harness.advance(1)
    assert harness.epochs == ("Empty", 3, 3)
    assert harness.ask("A", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_keeps_partitions_too_long_is_removed() -> None:
    harness = ConsumerHarness()
    harness.ask("A", 0, **{**joining("t"), "rebalance_timeout_ms": 10_000})
    harness.join("B", "t")
    harness.beat("A")
    harness.advance(9_000)
    harness.beat("A")
    harness.beat("B")
    assert "A" in harness.group.members
    harness.advance(1_000)
    assert "A" not in harness.group.members
    assert harness.beat("B").assignment == parts(t=range(6))


def test_administrator_removes_members_with_one_epoch() -> None:
    harness = ConsumerHarness()
    for name in "ABC":
        harness.join(name, "t")
    epoch = harness.group.epoch
    ticket = harness.ticket()
    leaving = tuple(LeavingMember(member_id=name) for name in "ABXA")
    harness.handle(Leave(at_ms=harness.now_ms, reply_to=ticket, group_id="g", members=leaving))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.replies[ticket] == LeaveReply(
        errors=(ErrorCode.NONE, ErrorCode.NONE, unknown, unknown)
    )
    assert harness.group.epoch == epoch + 1


def test_changed_subscription_takes_partitions_away_before_the_next_target() -> None:
    settings = ConsumerGroupSettings(assignment_interval_ms=10_000)
    topics = {"t": topic("t", 2), "u": topic("u", 1)}
    harness = ConsumerHarness(topics=topics, settings=settings)
    harness.join("A", "t", "u")
    reply = harness.beat("A", subscribed_topics=("u",))
    assert (reply.member_epoch, reply.assignment) == (2, parts(u=(0,)))
    assert harness.epochs == ("Assigning", 3, 2)


def test_groups_without_the_group_return_kafkas_messages() -> None:
    harness = ConsumerHarness()
    for epoch, fields, message in (
        (5, {}, "Consumer group g not found."),
        (-1, {}, "Group g not found."),
        (-2, {"instance_id": "i"}, "Group g not found."),
    ):
        reply = harness.ask("A", epoch, **fields)
        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert reply.error_message == message
    assert "g" not in harness.shard.groups


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (
            {"member_epoch": -2, "member_id": " ", "instance_id": "i"},
            ErrorCode.INVALID_REQUEST,
            "MemberId can't be empty.",
        ),
        (
            {"member_epoch": -3, "member_id": "", "instance_id": "", "group_id": ""},
            ErrorCode.INVALID_REQUEST,
            "MemberId can't be empty.",
        ),
        (
            {"member_epoch": -1, "member_id": "", "may_generate_id": True},
            ErrorCode.INVALID_REQUEST,
            "MemberId can't be empty.",
        ),
        (
            {"rebalance_timeout_ms": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"owned": None},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"owned": parts(t=(0,))},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topics": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        (
            {"server_assignor": "other"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor other is not supported. Supported assignors: uniform, range.",
        ),
        (
            {"subscribed_regex": "(", "regex_error": "missing closing )"},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).",
        ),
    ],
)
def test_invalid_heartbeat_returns_kafkas_error(
    changed: dict[str, object], error: ErrorCode, message: str
) -> None:
    harness = ConsumerHarness()
    ticket = harness.ticket()
    event = ConsumerGroupHeartbeat(
        at_ms=harness.now_ms,
        reply_to=ticket,
        group_id="g",
        member_id="A",
        generated_member_id="",
        member_epoch=0,
        client_id="c",
        client_host="/h",
        subscribed_topics=("t",),
        owned={},
        rebalance_timeout_ms=1000,
    )
    harness.handle(msgspec.structs.replace(event, **changed))
    assert harness.replies[ticket] == ConsumerGroupHeartbeatReply(
        error=error, error_message=message
    )
    assert not harness.shard.groups


def test_first_version_gets_a_generated_member_id() -> None:
    harness = ConsumerHarness()
    reply = harness.join("", "t", may_generate_id=True)
    assert (reply.error, reply.member_id) == (ErrorCode.NONE, "generated")


def test_first_version_names_no_member_to_leave_for_a_while() -> None:
    harness = ConsumerHarness()
    fields = {"instance_id": "i", "may_generate_id": True}
    assert harness.ask("", -2, **fields).error is ErrorCode.GROUP_ID_NOT_FOUND
    harness.join("A", "t", instance_id="i")
    reply = harness.ask("", -2, **fields)
    assert (reply.error, reply.error_message) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member  with instance id i was fenced by member A.",
    )


def test_heartbeat_before_the_topics_are_known_is_refused() -> None:
    harness = ConsumerHarness()
    harness.shard.catalogue.topics = None
    assert harness.join("A", "t").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
