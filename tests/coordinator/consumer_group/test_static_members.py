"""Static members: temporary leaves, replacement and fencing."""

from __future__ import annotations

from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings

from .harness import ConsumerHarness, joining, parts, topic


def test_static_member_returns_with_its_partitions_without_a_new_epoch() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=(0, 1, 2)), instance_id="i")
    harness.beat("B")
    for _ in range(2):
        reply = harness.ask("A", -2, instance_id="i")
        assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, -2)
    assert harness.epochs == ("Reconciling", 3, 3)
    returned = harness.join("C", "t", instance_id="i")
    assert (returned.member_epoch, returned.assignment) == (3, parts(t=(0, 1, 2)))
    assert harness.epochs == ("Stable", 3, 3)
    fenced = harness.ask("A", 3, instance_id="i")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.ask("A", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_returns_with_another_subscription() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 2), "u": topic("u", 1)})
    harness.join("A", "t", instance_id="i")
    harness.ask("A", -2, instance_id="i")
    reply = harness.join("B", "t", "u", instance_id="i")
    assert (reply.member_epoch, reply.assignment) == (3, parts(t=(0, 1), u=(0,)))


def test_static_member_returns_under_its_old_member_id() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    harness.ask("A", -2, instance_id="i")
    reply = harness.join("A", "t", instance_id="i")
    assert (reply.member_epoch, reply.assignment) == (2, parts(t=range(6)))


def test_instance_id_in_use_is_not_released() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    reply = harness.join("C", "t", instance_id="i")
    assert reply.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert reply.error_message == (
        "Static member C with instance id i cannot join the group because the instance id is owned "
        "by A member."
    )
    assert harness.ask("C", 1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    unknown = harness.ask("A", 2, instance_id="j")
    assert (unknown.error, unknown.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id j is unknown.",
    )


def test_static_member_that_joins_again_is_not_refused() -> None:
    """Its first response may have been lost. Kafka refuses it."""
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    assert harness.join("A", "t", instance_id="i").member_epoch == 2


def test_static_member_that_leaves_for_good_frees_its_partitions() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    assert harness.leave("A", instance_id="i").member_epoch == -1
    assert harness.epochs == ("Empty", 3, 3)
    assert harness.join("B", "t", instance_id="i").error is ErrorCode.NONE


def test_absent_static_member_expires() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    harness.ask("A", -2, instance_id="i")
    harness.advance(45_000)
    assert harness.epochs == ("Empty", 3, 3)


def test_static_member_that_leaves_during_a_revocation_is_not_removed() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    harness.join("B", "t")
    harness.beat("A", instance_id="i")
    harness.ask("A", -2, instance_id="i")
    reply = harness.join("C", "t", instance_id="i")
    assert reply.assignment == parts(t=(0, 1, 2))
    assert harness.beat("B").assignment == parts(t=(3, 4, 5))


def test_static_member_that_returns_during_a_computation_is_not_removed() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 6), "u": topic("u", 1)})
    harness.join("A", "t", instance_id="i")
    harness.join("B", "t")
    harness.beat("A", instance_id="i")
    harness.ask("A", -2, instance_id="i")
    harness.runs_actions = False
    ticket = harness.send("C", 0, **joining("t", "u"), instance_id="i")
    assert ticket not in harness.replies
    for _ in range(10):
        harness.advance(10_000)
        harness.beat("B")
    assert harness.group.members.keys() == {"B", "C"}
    harness.run_actions()
    assert harness.replies[ticket].error is ErrorCode.NONE


def test_static_member_returns_to_a_full_group() -> None:
    settings = ConsumerGroupSettings(assignment_interval_ms=0, members_max=2)
    harness = ConsumerHarness(settings=settings)
    harness.join("A", "t")
    harness.join("B", "t", instance_id="i")
    assert harness.join("C", "t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join("C", "t", instance_id="j").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join("C", "t", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert harness.ask("C", 3, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    harness.ask("B", -2, instance_id="i")
    assert harness.join("C", "t", instance_id="i").error is ErrorCode.NONE
    assert harness.group.members.keys() == {"A", "C"}
