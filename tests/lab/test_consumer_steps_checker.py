"""The rule ``consumer-steps`` rejects histories in which a member moves in other steps."""

from __future__ import annotations

from typing import Any

import pytest

from partage.coordinator.consumer_group.records import (
    ConsumerMemberRecord,
    MemberTargetRecord,
    ReconciliationState,
    RegularExpressionRecord,
)
from partage.lab import history
from partage.model.errors import ErrorCode
from partage.store.record_formats import encode_record
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupMemberResult,
    LeaveGroupRequest,
    LeaveGroupResponse,
)

from .consumer_group_builder import (
    INTERVAL_MS,
    UNREVOKED,
    GroupBuilder,
    T,
    assignment,
    expect,
    group_record,
    hand_over,
    member_record,
    removal,
    target,
    target_epoch,
)

UNRELEASED = ReconciliationState.UNRELEASED_PARTITIONS
STATIC_LEAVE = -2
U = b"u" * 16


@pytest.fixture
def built() -> GroupBuilder:
    """A group in epoch 2 with member "a", which has both partitions."""
    builder = GroupBuilder()
    builder.join("a", 2, 0, 1)
    return builder


def start_revocation(built: GroupBuilder, **fields: Any) -> None:
    """Let "a" begin to give up partition 1."""
    wanted: dict[str, Any] = {"epoch": 2, "previous": 2} | fields
    built.append_records(group_record(3), target("a", 0), target_epoch(3))
    built.append_records(
        assignment("a", assigned={0: 2}, pending={1: 2}, state=UNREVOKED, **wanted)
    )


def test_steps_of_a_handover_break_no_rule(built: GroupBuilder) -> None:
    hand_over(built)


def test_member_that_must_give_up_partitions_keeps_its_epoch(built: GroupBuilder) -> None:
    with expect("consumer-steps"):
        start_revocation(built, epoch=3)


def test_second_revocation_raises_the_epoch_by_one(built: GroupBuilder) -> None:
    start_revocation(built)
    built.append_records(group_record(4), target("a"), target_epoch(4))
    second = {"assigned": {}, "pending": {0: 2}, "state": UNREVOKED, "previous": 2}
    with expect("consumer-steps"):
        built.heartbeat("a", 2, 2, owned=(0,), assigned=(), records=(assignment("a", 2, **second),))


def test_second_revocation_at_the_next_epoch_breaks_no_rule(built: GroupBuilder) -> None:
    start_revocation(built)
    built.append_records(group_record(4), target("a"), target_epoch(4))
    second = {"assigned": {}, "pending": {0: 2}, "state": UNREVOKED, "previous": 2}
    built.heartbeat("a", 2, 3, owned=(0,), assigned=(), records=(assignment("a", 3, **second),))


@pytest.mark.parametrize("state", [ReconciliationState.STABLE, UNRELEASED])
def test_member_without_revocation_has_the_epoch_of_the_target(
    built: GroupBuilder, state: ReconciliationState
) -> None:
    built.append_records(group_record(3), target_epoch(3))
    with expect("consumer-(steps|reconciliation)"):
        built.append_records(assignment("a", 2, {0: 2, 1: 2}, previous=2, state=state))


def test_previous_epoch_is_the_one_before_the_step(built: GroupBuilder) -> None:
    with expect("consumer-steps"):
        start_revocation(built, previous=0)


# Static members

INSTANCE = {"instance_id": "i"}


@pytest.fixture
def away() -> GroupBuilder:
    """A group in epoch 2. Its static member "a", with both partitions, has left for a while."""
    builder = GroupBuilder()
    builder.append_records(
        member_record("a", **INSTANCE),
        group_record(2),
        target("a", 0, 1),
        target_epoch(2),
        assignment("a", 2, {0: 2, 1: 2}),
    )
    builder.append_records(assignment("a", STATIC_LEAVE, {0: 2, 1: 2}))
    return builder


def take_over(
    away: GroupBuilder,
    *indexes: int,
    assigned: tuple[int, ...] = (0, 1),
    since: int = 2,
    **fields: Any,
) -> None:
    """Let "b" take over the instance id of "a", with this target."""
    message = ConsumerGroupHeartbeatRequest(
        group_id="k", member_id="b", member_epoch=0, instance_id="i", topic_partitions=[]
    )
    away.receive_request(CONSUMER_GROUP_HEARTBEAT, message, client="b", connection=1)
    away.append_records(
        *removal("a"),
        member_record("b", **INSTANCE | fields),
        target("b", *indexes),
        assignment("b", 0, dict.fromkeys(assigned, since)),
        assignment("b", 2, dict.fromkeys(assigned, since)),
    )


def test_takeover_of_an_instance_id_breaks_no_rule(away: GroupBuilder) -> None:
    take_over(away, 0, 1)


def test_takeover_without_the_target_is_rejected(away: GroupBuilder) -> None:
    with expect("consumer-steps"):
        take_over(away, 0, assigned=(0,))


def test_takeover_without_a_partition_is_rejected(away: GroupBuilder) -> None:
    with expect("consumer-(steps|reconciliation)"):
        take_over(away, 0, 1, assigned=(0,))


def test_takeover_with_other_epochs_of_the_partitions_is_rejected(away: GroupBuilder) -> None:
    with expect("consumer-steps"):
        take_over(away, 0, 1, since=1)


def test_takeover_with_other_topics_in_the_same_epoch_is_rejected(away: GroupBuilder) -> None:
    with expect("consumer-steps"):
        take_over(away, 0, 1, subscribed_topics=("t", "u"))


# Subscriptions and assignors


@pytest.mark.parametrize(
    "changed",
    [
        member_record("a", subscribed_topics=("t", "u")),
        member_record("a", subscribed_regex="known"),
        member_record("a", server_assignor="range"),
    ],
)
def test_change_that_keeps_the_epoch_is_rejected(
    built: GroupBuilder, changed: ConsumerMemberRecord
) -> None:
    built.append_records(
        RegularExpressionRecord(
            group_id="k", regex="known", topics=("t",), version=1, resolved_ms=0
        )
    )
    built.append_records(changed, group_record(3))
    built.append_records(changed)
    with expect("consumer-steps"):
        built.append_records(member_record("a"))


def test_unknown_expression_or_default_assignor_keeps_the_epoch(built: GroupBuilder) -> None:
    built.append_records(member_record("a", server_assignor="uniform"))
    built.append_records(member_record("a", subscribed_regex="unknown"))


def change_topics(built: GroupBuilder, epoch: int = 3) -> None:
    """Let "a" subscribe to another topic instead, which raises the epoch of the group."""
    message = ConsumerGroupHeartbeatRequest(
        group_id="k", member_id="a", member_epoch=2, subscribed_topic_names=["u"]
    )
    asked = built.receive_request(CONSUMER_GROUP_HEARTBEAT, message, client="a", connection=1)
    built.append_records(member_record("a", subscribed_topics=("u",)), group_record(epoch))
    response = ConsumerGroupHeartbeatResponse(
        error_code=0, member_id="a", member_epoch=2, heartbeat_interval_ms=INTERVAL_MS
    )
    built.send_response(asked, response)


def test_member_keeps_no_partitions_of_other_topics(built: GroupBuilder) -> None:
    with expect("consumer-steps"):
        change_topics(built)


# Targets


def test_target_without_a_partition_of_a_known_topic_is_rejected(built: GroupBuilder) -> None:
    built.at_ms += 5_000
    built.append_records(group_record(3), target("a", 0))
    with expect("consumer-steps"):
        built.append_records(target_epoch(3))


@pytest.mark.parametrize("count", [2, 3])
def test_target_need_not_cover_a_new_partition(built: GroupBuilder, count: int) -> None:
    built.at_ms += 5_000
    built.append_records(group_record(3))
    built.append(history.ConsumerTopicsChanged, topics=(("t", T, count), ("u", U, 1)))
    built.append_records(target("a", 0, 1), target_epoch(3))


# Members that leave


@pytest.mark.parametrize("epoch", [-1, STATIC_LEAVE])
def test_leave_without_its_record_is_rejected(built: GroupBuilder, epoch: int) -> None:
    with expect("consumer-steps"):
        built.heartbeat("a", epoch, epoch)


def test_leaves_break_no_rule(built: GroupBuilder) -> None:
    left = assignment("a", STATIC_LEAVE, {0: 2, 1: 2})
    built.heartbeat("a", STATIC_LEAVE, STATIC_LEAVE, records=(left,))
    built.heartbeat("a", -1, -1, records=(*removal("a"), group_record(3)))


def remove(built: GroupBuilder, member: LeaveGroupMember, code: int, *records: Any) -> None:
    """Let an administrator remove a member."""
    message = LeaveGroupRequest(group_id="k", members=[member])
    asked = built.receive_request(LEAVE_GROUP, message, client="admin", connection=1)
    built.append_records(*records)
    result = LeaveGroupMemberResult(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )
    built.send_response(asked, LeaveGroupResponse(error_code=0, members=[result]))


REMOVED = (LeaveGroupMember(member_id="a"), LeaveGroupMember(member_id="", group_instance_id="i"))


@pytest.mark.parametrize("member", REMOVED, ids=repr)
@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_MEMBER_ID])
def test_removal_of_a_member_that_stays_is_rejected(
    away: GroupBuilder, member: LeaveGroupMember, code: int
) -> None:
    with expect("consumer-steps"):
        remove(away, member, code)


@pytest.mark.parametrize("member", REMOVED, ids=repr)
def test_removal_breaks_no_rule(away: GroupBuilder, member: LeaveGroupMember) -> None:
    remove(away, member, 0, *removal("a"), group_record(3), target_epoch(3))
    remove(away, member, ErrorCode.UNKNOWN_MEMBER_ID)


# Reasons


def test_epoch_without_a_reason_is_rejected(built: GroupBuilder) -> None:
    built.at_ms += 10_000
    built.append_records(member_record("a", server_assignor="range"), group_record(3))
    built.append_records(member_record("a", server_assignor="range", subscribed_regex="new"))
    with expect("consumer-steps"):
        built.append_records(group_record(4))


@pytest.mark.parametrize(
    "records",
    [
        (member_record("a", subscribed_topics=("t", "u")),),
        (member_record("a", server_assignor="range"),),
        (member_record("b"),),
        (RegularExpressionRecord(group_id="k", regex="r", topics=(), version=1, resolved_ms=0),),
    ],
    ids=repr,
)
def test_epoch_with_a_reason_breaks_no_rule(built: GroupBuilder, records: Any) -> None:
    built.at_ms += 10_000
    built.append_records(*records, group_record(3))


def test_changed_topic_is_a_reason_for_an_epoch(built: GroupBuilder) -> None:
    built.at_ms += 10_000
    built.append(history.ConsumerTopicsChanged, topics=(("t", T, 3),))
    built.append_records(group_record(3))


LOADED = dict(
    encode_record(record)
    for record in (
        member_record("a"),
        group_record(2),
        target("a", 0, 1),
        target_epoch(2),
        assignment("a", 2, {0: 2, 1: 2}),
    )
)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(history.ShardLoaded, {"state": LOADED}), (history.StallEnded, {"began_ms": 0})],
)
def test_nothing_is_said_about_reasons_soon_after_a_disturbance(
    built: GroupBuilder, kind: Any, fields: dict[str, Any]
) -> None:
    """The coordinator may learn of changed topics only then."""
    built.at_ms += 10_000
    built.append(kind, **fields)
    built.append_records(group_record(3))
    built.at_ms += 10_000
    built.append_records(group_record(4))
    with expect("consumer-steps"):
        built.append_records(group_record(5))


def test_target_need_not_cover_topics_soon_after_a_pause(built: GroupBuilder) -> None:
    built.at_ms += 10_000
    built.append(history.StallEnded, began_ms=0)
    built.append_records(group_record(3))
    built.append_records(target("a", 0), target_epoch(3))


def test_target_must_cover_topics_soon_after_a_load(built: GroupBuilder) -> None:
    built.at_ms += 10_000
    built.append(history.ShardLoaded, state=LOADED)
    built.append_records(group_record(3))
    with expect("consumer-steps"):
        built.append_records(target("a", 0), target_epoch(3))


def subscribe_to_other_topic(built: GroupBuilder, epoch: int, *, durable: bool = True) -> None:
    """Let "a" subscribe to topic "u" instead of "t"."""
    built.append(history.ConsumerTopicsChanged, topics=(("t", T, 2), ("u", U, 1)))
    other = member_record("a", subscribed_topics=("u",))
    built.append_records(other, group_record(epoch), durable=durable)


def test_target_with_topics_of_another_epoch_is_rejected(built: GroupBuilder) -> None:
    subscribe_to_other_topic(built, 3)
    with expect("consumer-steps"):
        built.append_records(target_epoch(3))


def test_target_with_topics_of_a_lost_epoch_is_rejected(built: GroupBuilder) -> None:
    """The target was computed for a subscription that was lost, in the same epoch."""
    subscribe_to_other_topic(built, 3, durable=False)
    built.append(history.LogWriteFailed)
    built.append(history.ShardLoaded, state=LOADED)
    built.append_records(member_record("a", server_assignor="range"), group_record(3))
    lost = MemberTargetRecord(group_id="k", member_id="a", partitions={U: (0,)})
    with expect("consumer-steps"):
        built.append_records(lost, target_epoch(3))


def test_target_of_an_earlier_epoch_has_its_topics(built: GroupBuilder) -> None:
    built.append_records(member_record("a", server_assignor="range"), group_record(3))
    subscribe_to_other_topic(built, 4)
    built.append_records(target_epoch(3))


def test_target_of_an_earlier_epoch_need_not_cover_the_topics(built: GroupBuilder) -> None:
    built.at_ms += 10_000
    built.append_records(member_record("a", server_assignor="range"), group_record(3))
    built.append_records(member_record("b"), group_record(4))
    built.append_records(target("a", 0), target_epoch(3))


def test_member_without_a_takeover_does_not_begin_with_epoch_0(away: GroupBuilder) -> None:
    away.append_records(member_record("b"), group_record(3))
    with expect("consumer-steps"):
        away.append_records(assignment("b", 0, {}))


def test_repeated_heartbeat_with_known_topics_is_not_judged(built: GroupBuilder) -> None:
    """An earlier heartbeat with these topics may still wait for the target."""
    built.append_records(member_record("a", subscribed_topics=("u",)), group_record(3))
    change_topics(built, epoch=4)
