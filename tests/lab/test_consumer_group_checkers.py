"""Each rule about the group with the consumer protocol rejects a history that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from partage.coordinator.consumer_group.records import (
    RegularExpressionRecord,
)
from partage.coordinator.outcome import SESSION_EXPIRED_REASON
from partage.lab import history
from partage.lab.checkers.consumer_group_log import LoggedGroup, apply_record, parse_key
from partage.lab.history import RuleViolationError
from partage.model.errors import ErrorCode
from partage.store.record_formats import encode_record

from .consumer_group_builder import (
    INTERVAL_MS,
    REBALANCE_MS,
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


@pytest.fixture
def built() -> GroupBuilder:
    """A group in epoch 2 with member "a", which has both partitions."""
    builder = GroupBuilder()
    builder.join("a", 2, 0, 1)
    return builder


def test_decoder_reads_every_record_as_written() -> None:
    group = LoggedGroup()
    for record in (
        group_record(7),
        member_record("a", instance_id="i", subscribed_regex="k.*", rebalance_timeout_ms=9),
        target("a", 0, 1),
        target_epoch(6),
        assignment("a", 6, {0: 4}, previous=5, pending={1: 3}, state=UNREVOKED),
        RegularExpressionRecord(
            group_id="k", regex="k.*", topics=("ka", "kb"), version=3, resolved_ms=8
        ),
    ):
        pair = encode_record(record)
        key = parse_key(*pair)
        assert key is not None
        group = apply_record(group, key, pair[1])
    member = group.members["a"]
    assert (group.epoch, group.target_epoch, group.regexes) == (7, 6, {"k.*": ("ka", "kb")})
    assert (member.instance_id, member.topics, member.regex) == ("i", ("t",), "k.*")
    assert (member.rebalance_timeout_ms, member.target) == (9, {(T, 0), (T, 1)})
    assert (member.epoch, member.previous_epoch, member.state) == (6, 5, 1)
    assert (member.assigned, member.pending) == ({(T, 0): 4}, {(T, 1): 3})


def test_handover_after_confirmation_breaks_no_rule(built: GroupBuilder) -> None:
    hand_over(built)
    built.owns("a", 0)
    built.owns("b", 1)


@pytest.mark.parametrize("reported", [None, (0, 1)])
def test_handover_without_confirmation_is_rejected(
    built: GroupBuilder, reported: tuple[int, ...] | None
) -> None:
    with expect("consumer-reconciliation"):
        hand_over(built, reported=reported)


def test_two_owners_in_log_are_rejected(built: GroupBuilder) -> None:
    built.append_records(member_record("b"), target("b", 1))
    with expect("consumer-reconciliation"):
        built.append_records(assignment("b", 2, {1: 2}))


def test_target_with_two_owners_is_rejected(built: GroupBuilder) -> None:
    built.append_records(member_record("b"), group_record(3), target("b", 1))
    with expect("consumer-reconciliation"):
        built.append_records(target_epoch(3))


def test_new_partition_with_old_epoch_is_rejected(built: GroupBuilder) -> None:
    built.append_records(member_record("b"), group_record(3), target("a", 0), target_epoch(3))
    built.heartbeat(
        "a", 2, 3, owned=(0,), assigned=(0,), records=(assignment("a", 3, {0: 2}, previous=2),)
    )
    built.append_records(target("b", 1))
    with expect("consumer-reconciliation"):
        built.append_records(assignment("b", 3, {}), assignment("b", 3, {1: 2}, previous=3))


def test_two_members_that_own_a_partition_are_rejected(built: GroupBuilder) -> None:
    hand_over(built)
    built.owns("a", 0, 1)
    with expect("consumer-ownership"):
        built.owns("b", 1)


def test_partition_of_removed_member_may_be_owned_again(built: GroupBuilder) -> None:
    built.owns("a", 0, 1)
    built.heartbeat("a", -1, -1, records=(*removal("a"), group_record(3), target_epoch(3)))
    built.join("b", 4, 0, 1)
    built.owns("b", 0, 1)


def test_removed_member_that_joins_again_has_no_partition(built: GroupBuilder) -> None:
    """It reports the partitions that it had, which another member has since."""
    built.at_ms += SESSION_MS
    built.append(history.MemberExpired, group_id="k", member_id="a", reason=SESSION_EXPIRED_REASON)
    built.append_records(*removal("a"), group_record(3), target_epoch(3))
    built.join("b", 4, 0, 1)
    built.append_records(member_record("a"), group_record(5))
    built.append_records(assignment("a", 4, {}))
    added = (target_epoch(5), assignment("b", 5, {0: 4, 1: 4}, previous=4))
    built.heartbeat("b", 4, 5, assigned=(0, 1), records=added)


def test_heartbeat_with_the_instance_id_of_another_member_must_be_fenced(
    built: GroupBuilder,
) -> None:
    built.append_records(member_record("b", instance_id="i"), group_record(3))
    with expect("consumer-fence"):
        built.heartbeat("a", 2, 2, instance_id="i")


@pytest.mark.parametrize("epoch", [4, 2])
def test_group_epoch_must_grow_by_one(built: GroupBuilder, epoch: int) -> None:
    with expect("consumer-epochs"):
        built.append_records(group_record(epoch))


def test_target_ahead_of_group_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-epochs"):
        built.append_records(target_epoch(3))


def test_member_epoch_that_runs_backwards_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-epochs"):
        built.append_records(assignment("a", 1, {0: 2, 1: 2}, previous=2))


def test_response_with_an_epoch_that_is_not_durable_is_rejected(built: GroupBuilder) -> None:
    built.append_records(group_record(3), target_epoch(3), durable=False)
    built.append_records(assignment("a", 3, {0: 2, 1: 2}, previous=2), durable=False)
    with expect("consumer-epochs"):
        built.heartbeat("a", 2, 3)


@pytest.mark.parametrize(("epoch", "owned"), [(1, None), (3, None), (0x7FFF, ())])
def test_heartbeat_with_a_stale_epoch_must_be_fenced(
    built: GroupBuilder, epoch: int, owned: tuple[int, ...] | None
) -> None:
    built.heartbeat("a", epoch, 0, owned=owned, code=ErrorCode.FENCED_MEMBER_EPOCH)
    with expect("consumer-fence"):
        built.heartbeat("a", epoch, 2, owned=owned)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_heartbeat_with_the_current_epoch_must_be_accepted(
    built: GroupBuilder, code: ErrorCode
) -> None:
    built.heartbeat("a", 2, 2)
    with expect("consumer-fence"):
        built.heartbeat("a", 2, 0, code=code)


def test_response_without_a_changed_assignment_is_rejected(built: GroupBuilder) -> None:
    hand_over(built)
    smaller = assignment("a", 3, {}, previous=3, pending={0: 2}, state=UNREVOKED)
    built.heartbeat("a", 3, 3, records=(smaller,))
    with expect("consumer-responses"):
        built.heartbeat("a", 3, 3)


@pytest.mark.parametrize(
    ("name", "epoch", "code"),
    [
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, ErrorCode.NONE),
        ("a", 3, ErrorCode.NONE),
        ("b", 2, ErrorCode.NONE),
        ("a", -1, ErrorCode.NONE),
    ],
)
def test_commit_with_the_wrong_result_is_rejected(
    built: GroupBuilder, name: str, epoch: int, code: ErrorCode
) -> None:
    with pytest.raises(RuleViolationError, match=r"^(consumer-commits|commits):"):
        built.commit(name, epoch, code)


def test_commit_with_older_epoch_of_kept_partition_must_be_accepted(built: GroupBuilder) -> None:
    hand_over(built)
    with expect("consumer-commits"):
        built.commit("a", 2, ErrorCode.STALE_MEMBER_EPOCH)


def test_delivery_of_a_partition_of_another_member_is_rejected(built: GroupBuilder) -> None:
    hand_over(built)
    got = assignment("b", 3, {1: 3}, previous=3)
    built.heartbeat("b", 3, 3, assigned=(1,), records=(got,))
    built.receives("a", 0, 1)
    built.receives("b", 1)
    built.delivers("a", 0)
    built.delivers("b", 1)
    with expect("consumer-delivery"):
        built.delivers("a", 0, 1)


def test_delivery_of_a_partition_to_revoke_is_rejected(built: GroupBuilder) -> None:
    built.receives("a", 0)
    built.delivers("a", 0)
    with expect("consumer-delivery"):
        built.delivers("a", 0, 1)


def test_partition_that_is_added_before_a_revocation_is_rejected(built: GroupBuilder) -> None:
    built.receives("a", 0)
    built.owns("a", 0)
    built.receives("a", 1)
    with expect("consumer-delivery"):
        built.owns("a", 0, 1, has_received=False)


def test_first_heartbeat_of_a_connection_without_fields_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-delivery"):
        built.heartbeat("c", 2, 2)


def test_delivery_after_the_session_ended_is_rejected(built: GroupBuilder) -> None:
    built.receives("a", 0, 1)
    built.delivers("a", 0, 1)
    built.at_ms += 60_000
    built.append(history.MemberExpired, group_id="k", member_id="a", reason=SESSION_EXPIRED_REASON)
    with expect("consumer-delivery"):
        built.delivers("a", 0, 1)


def test_member_that_expires_too_early_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-session"):
        built.append(
            history.MemberExpired, group_id="k", member_id="a", reason=SESSION_EXPIRED_REASON
        )


def test_member_that_is_removed_without_reason_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-session"):
        built.append_records(*removal("a"))


def test_member_that_never_expires_is_rejected(built: GroupBuilder) -> None:
    hand_over(built)
    built.append(history.ShardLoaded, state=loaded_state(built), epoch=0)
    built.heartbeat("b", 3, 3)
    built.at_ms += 60_000
    with expect("consumer-session"):
        built.heartbeat("b", 3, 3)


def test_lost_revocation_does_not_bind_the_member(built: GroupBuilder) -> None:
    state = loaded_state(built)
    begin_revocation(built, durable=False)
    built.append(history.LogWriteFailed)
    built.append(history.ShardLoaded, state=state, epoch=0)
    stay_in_group(built, 400_000)


def test_removal_for_a_lost_revocation_is_rejected(built: GroupBuilder) -> None:
    state = loaded_state(built)
    begin_revocation(built, durable=False)
    built.append(history.LogWriteFailed)
    built.append(history.ShardLoaded, state=state, epoch=0)
    built.at_ms += 400_000
    with expect("consumer-session"):
        built.append(history.MemberExpired, group_id="k", member_id="a", reason="rebalance")


def test_stored_revocation_binds_the_member_after_a_load(built: GroupBuilder) -> None:
    begin_revocation(built)
    built.append(history.LogWriteFailed)
    built.append(history.ShardLoaded, state=loaded_state(built), epoch=0)
    built.heartbeat("a", 2, 2, owned=(0, 1), assigned=(0,), is_full=True, connection=2)
    with expect("consumer-session"):
        stay_in_group(built, 400_000)


def test_load_of_another_shard_does_not_restart_deadlines(built: GroupBuilder) -> None:
    hand_over(built)
    built.append(history.ShardLoaded, state=loaded_state(built), epoch=0)
    built.heartbeat("b", 3, 3)
    built.at_ms += 60_000
    built.append(history.ShardLoaded, shard=1, state={}, epoch=0)
    with expect("consumer-session"):
        built.heartbeat("b", 3, 3)


def test_failed_write_of_another_shard_does_not_stop_deadlines(built: GroupBuilder) -> None:
    hand_over(built)
    built.append(history.ShardLoaded, state=loaded_state(built), epoch=0)
    built.heartbeat("b", 3, 3)
    built.append(history.LogWriteFailed, shard=1)
    built.at_ms += 60_000
    with expect("consumer-session"):
        built.heartbeat("b", 3, 3)


def begin_revocation(built: GroupBuilder, *, durable: bool = True) -> None:
    """Let "b" join, so that "a" must give up partition 1."""
    built.append_records(
        member_record("b"),
        group_record(3),
        target("a", 0),
        target("b", 1),
        target_epoch(3),
        assignment("a", 2, {0: 2}, previous=2, pending={1: 2}, state=UNREVOKED),
        durable=durable,
    )


def stay_in_group(built: GroupBuilder, duration_ms: int) -> None:
    """Let "a" send heartbeats without news."""
    for _ in range(0, duration_ms, 2_000):
        built.at_ms += 2_000
        built.heartbeat("a", 2, 2)


def loaded_state(built: GroupBuilder) -> dict[bytes, bytes | None]:
    state: dict[bytes, bytes | None] = {}
    for entry in built.history.entries:
        if isinstance(entry, history.RecordsAppended):
            state.update(entry.pairs)
    return {key: value for key, value in state.items() if value is not None}


# The rule about needless heartbeats


def test_heartbeats_at_their_interval_break_no_rule(built: GroupBuilder) -> None:
    for after_ms in (1, 4_000, 4_000):
        built.sends_heartbeat("a", after_ms)
    built.sends_heartbeat("a", 1, reports_change=True)
    built.sends_heartbeat("a", 4_000)


@pytest.mark.parametrize("early_ms", [1, 3_999])
def test_early_heartbeat_without_a_change_is_rejected(built: GroupBuilder, early_ms: int) -> None:
    """The interval is a third of the rebalance timeout, which is shorter."""
    built.sends_heartbeat("a", 1)
    with expect("consumer-requests"):
        built.sends_heartbeat("a", early_ms)


def test_refused_commit_allows_one_early_heartbeat(built: GroupBuilder) -> None:
    built.sends_heartbeat("a", 1)
    built.commit("a", 1, ErrorCode.STALE_MEMBER_EPOCH)
    built.sends_heartbeat("a", 1)
    with expect("consumer-requests"):
        built.sends_heartbeat("a", 1)


def test_all_fields_on_a_known_connection_are_rejected(built: GroupBuilder) -> None:
    built.heartbeat("a", 2, 2)
    with expect("consumer-requests"):
        built.heartbeat("a", 2, 2, owned=(0, 1), assigned=(0, 1), is_full=True)


def test_all_fields_after_an_error_or_reconnect_break_no_rule(built: GroupBuilder) -> None:
    built.heartbeat("a", 2, 2, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    built.heartbeat("a", 2, 2, owned=(0, 1), assigned=(0, 1), is_full=True)
    built.heartbeat("a", 2, 2, owned=(0, 1), assigned=(0, 1), is_full=True, connection=2)
    with expect("consumer-requests"):
        built.heartbeat("a", 2, 2, owned=(0, 1), assigned=(0, 1), is_full=True, connection=2)


def test_repeated_report_is_rejected_until_the_next_assignment(built: GroupBuilder) -> None:
    built.heartbeat("a", 2, 2, owned=(0,))
    built.heartbeat("a", 2, 2, owned=(0, 1))
    built.receives("a", 0, 1)
    built.heartbeat("a", 2, 2, owned=(0, 1))
    with expect("consumer-requests"):
        built.heartbeat("a", 2, 2, owned=(0, 1))


def test_unchanged_assignment_in_a_response_is_rejected(built: GroupBuilder) -> None:
    with expect("consumer-requests"):
        built.heartbeat("a", 2, 2, assigned=(0, 1))


# The rule about what members allow and tell

SESSION_MS = 45_000  # the default


def sends(built: GroupBuilder, serial: int, epoch: int = 2, **fields: Any) -> None:
    known = {"topics": ("t",), "reports_change": True, **fields}
    built.append(history.MemberHeartbeatSent, process="a", serial=serial, epoch=epoch, **known)


def is_answered(built: GroupBuilder, serial: int, code: int = 0, **fields: Any) -> None:
    known = {"topics": ("t",), "error_code": code, **fields}
    built.append(
        history.MemberHeartbeatAnswered, process="a", member_id="a", serial=serial, **known
    )


def allows(built: GroupBuilder, *indexes: int, is_paused: bool = False) -> None:
    partitions = tuple((T, index) for index in indexes)
    built.append(
        history.MemberMayDeliver,
        process="a",
        member_id="a",
        partitions=partitions,
        is_paused=is_paused,
    )


@pytest.fixture
def reading(built: GroupBuilder) -> GroupBuilder:
    """Member "a" owns both partitions, and allows to deliver them."""
    sends(built, 1, epoch=0, owned=())
    is_answered(built, 1)
    built.owns("a", 0, 1)
    allows(built, 0, 1)
    return built


def test_member_that_stops_with_its_session_breaks_no_rule(reading: GroupBuilder) -> None:
    reading.append(history.MemberDisconnected, process="a")
    reading.at_ms += SESSION_MS - 10
    allows(reading)
    reading.at_ms += SESSION_MS
    sends(reading, 2, owned=((T, 0), (T, 1)))
    is_answered(reading, 2)
    allows(reading, 0, 1)


def test_member_that_trusts_its_session_too_long_is_rejected(reading: GroupBuilder) -> None:
    reading.at_ms += SESSION_MS
    with expect("consumer-member"):
        allows(reading)


@pytest.mark.parametrize("is_machine", [True, False])
def test_paused_member_allows_nothing(reading: GroupBuilder, *, is_machine: bool) -> None:
    if is_machine:
        began_ms = reading.at_ms
        reading.at_ms += 2 * SESSION_MS
        reading.append(history.StallEnded, began_ms=began_ms)
    else:
        allows(reading, is_paused=True)
        reading.at_ms += 2 * SESSION_MS
    allows(reading)


def test_member_that_allows_records_after_its_removal_is_rejected(reading: GroupBuilder) -> None:
    begin_revocation(reading)
    reading.at_ms += REBALANCE_MS
    reading.append(history.MemberExpired, group_id="k", member_id="a", reason="rebalance")
    with expect("consumer-member"):
        allows(reading, 0)


def test_member_that_allows_what_it_must_give_up_is_rejected(reading: GroupBuilder) -> None:
    sends(reading, 2)
    is_answered(reading, 2)
    reading.receives("a", 0)
    with expect("consumer-member"):
        allows(reading, 0, 1)


@pytest.mark.parametrize("act", ["allows", "sends"])
def test_removed_member_allows_nothing_and_joins(reading: GroupBuilder, act: str) -> None:
    sends(reading, 2)
    is_answered(reading, 2, ErrorCode.UNKNOWN_MEMBER_ID)
    with expect("consumer-member"):
        if act == "allows":
            allows(reading, 0, 1)
        else:
            sends(reading, 3)


def test_member_may_continue_while_its_coordinator_loads(reading: GroupBuilder) -> None:
    sends(reading, 2)
    is_answered(reading, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    allows(reading, 0, 1)
    sends(reading, 3)


def test_report_that_hides_a_partition_is_rejected(reading: GroupBuilder) -> None:
    sends(reading, 2, owned=((T, 0), (T, 1)))
    is_answered(reading, 2)
    with expect("consumer-member"):
        sends(reading, 3, owned=((T, 0),))


def test_partition_that_is_added_during_a_report_is_rejected(reading: GroupBuilder) -> None:
    reading.owns("a", 0)
    sends(reading, 2, owned=((T, 0),))
    with expect("consumer-member"):
        reading.owns("a", 0, 1)


def test_late_heartbeat_is_rejected(reading: GroupBuilder) -> None:
    sends(reading, 2)
    is_answered(reading, 2)
    reading.at_ms += INTERVAL_MS - 2
    with expect("consumer-member"):
        sends(reading, 3)


def test_heartbeat_may_be_late_after_a_lost_connection(reading: GroupBuilder) -> None:
    sends(reading, 2)
    is_answered(reading, 2)
    reading.append(history.MemberDisconnected, process="a")
    reading.at_ms += INTERVAL_MS
    sends(reading, 3)


def test_changed_subscription_is_sent_at_once(reading: GroupBuilder) -> None:
    sends(reading, 2)
    is_answered(reading, 2, topics=("u",))
    with expect("consumer-member"):
        sends(reading, 3, topics=("u",))


def test_other_stored_subscription_is_rejected(reading: GroupBuilder) -> None:
    sends(reading, 2, topics=("t",), regex="k.*")
    with expect("consumer-member"):
        is_answered(reading, 2, regex="k.*")


def test_member_that_leaves_without_a_request_is_rejected(reading: GroupBuilder) -> None:
    reading.append(history.MemberLeaveRequested, process="a", epoch=-1)
    with expect("consumer-member"):
        reading.append(history.MemberLeft, process="a", has_coordinator=True)


def test_member_without_coordinator_leaves_without_a_request(reading: GroupBuilder) -> None:
    reading.append(history.MemberLeaveRequested, process="a", epoch=-1)
    reading.append(history.MemberLeft, process="a", has_coordinator=False)


def test_leave_with_another_epoch_is_rejected(reading: GroupBuilder) -> None:
    reading.append(history.MemberLeaveRequested, process="a", epoch=-1)
    with expect("consumer-member"):
        sends(reading, 2, epoch=-2)
