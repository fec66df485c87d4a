"""Each checker rejects a history that breaks its rule."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from partage.coordinator.outcome import SESSION_EXPIRED_REASON
from partage.coordinator.records import OffsetTombstone
from partage.lab import history
from partage.lab.checkers import Ledger
from partage.lab.checkers.instance_ids import InstanceIdsChecker
from partage.lab.checkers.partition_owners import PartitionOwnersChecker
from partage.lab.history import RuleViolationError
from partage.model.errors import ErrorCode
from partage.store.record_formats import encode_record
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupMemberResult,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupResponse

from .history_builder import (
    HistoryBuilder,
    claim,
    commit,
    group,
    heartbeat,
    join,
    member,
    share,
    sync,
)

A, B = member("a", share(0)), member("b", share(1))


def generation_is_skipped(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    builder.generation(3, A)


def group_exceeds_maximum_size(builder: HistoryBuilder) -> None:
    builder.generation(1, A, B, member("c"))


def partition_is_assigned_twice(builder: HistoryBuilder) -> None:
    builder.generation(1, A, member("b", share(0)))


def partition_moves_in_one_rebalance(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    builder.generation(2, member("a", said=claim(0, generation=1)), member("b", share(0)))


def partition_is_owned_twice(builder: HistoryBuilder) -> None:
    builder.generation(1, A, B)
    for name in ("a", "b"):
        builder.append(
            history.OwnershipChanged,
            process=name,
            group_id="g",
            member_id=name,
            generation=1,
            partitions=(("t", 0),),
        )


def stored_assignment_was_not_sent(builder: HistoryBuilder) -> None:
    builder.receive_request(JOIN_GROUP, join("a"))
    builder.append_records(group(1, A, awaiting=True))
    builder.append_records(group(1, A))


def assignment_changes(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    for said in (share(0), share(1)):
        asked = builder.receive_request(SYNC_GROUP, sync(1, "a", []))
        builder.send_response(asked, SyncGroupResponse(error_code=0, assignment=said))


def generation_is_sent_before_durable(builder: HistoryBuilder) -> None:
    asked = builder.receive_request(JOIN_GROUP, join("a"))
    builder.append_records(group(1, A, awaiting=True), durable=False)
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="cooperative-sticky",
        leader="a",
        member_id="a",
        members=[],
    )
    builder.send_response(asked, answer)


def member_stays_without_rejoin(builder: HistoryBuilder) -> None:
    builder.generation(1, A, B)
    builder.receive_request(JOIN_GROUP, join("a"))
    builder.append_records(group(2, A, B, awaiting=True))


def stale_heartbeat_is_accepted(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    builder.generation(2, A)
    heartbeat(builder, "a", 1)


def current_member_gets_illegal_generation(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    heartbeat(builder, "a", 1, code=ErrorCode.ILLEGAL_GENERATION)


def dynamic_member_is_fenced(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    heartbeat(builder, "b", 1, code=ErrorCode.FENCED_INSTANCE_ID)


def static_assignment_was_not_sent(builder: HistoryBuilder) -> None:
    builder.receive_request(JOIN_GROUP, join("a"))
    static = msgspec.structs.replace(A, instance_id="i")
    builder.append_records(group(1, static, awaiting=True))
    builder.append_records(group(1, static))


def acknowledged_commit_is_not_stored(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder, writes=False)


def rejected_commit_is_stored(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder, code=ErrorCode.REBALANCE_IN_PROGRESS)


def offset_expires_too_early(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    builder.append_records(OffsetTombstone(group_id="g", topic="t", partition=0))


def durable_record_is_not_loaded(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    builder.append(history.BrokerDied, cause="killed")
    builder.append(history.ShardLoaded, state={})


def joined(builder: HistoryBuilder) -> None:
    asked = builder.receive_request(JOIN_GROUP, join("a"))
    builder.generation(1, B, A)
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="cooperative-sticky",
        leader="b",
        member_id="a",
        members=[],
    )
    builder.send_response(asked, answer)


def expired(builder: HistoryBuilder) -> None:
    builder.append(
        history.MemberExpired, group_id="g", member_id="a", reason=SESSION_EXPIRED_REASON
    )


def live_member_is_expired(builder: HistoryBuilder) -> None:
    joined(builder)
    heartbeat(builder, "a", 1)
    expired(builder)


def committing_member_is_expired(builder: HistoryBuilder) -> None:
    joined(builder)
    builder.at_ms += 5_900
    commit(builder)
    builder.at_ms += 200
    expired(builder)


def member_gets_no_grace_after_stall(builder: HistoryBuilder) -> None:
    joined(builder)
    stall(builder, 7_000)
    builder.at_ms += 900
    expired(builder)


def stall(builder: HistoryBuilder, for_ms: int) -> None:
    since_ms = builder.at_ms
    builder.at_ms += for_ms
    builder.append(history.StallEnded, began_ms=since_ms)


def former_owner_responds(builder: HistoryBuilder) -> None:
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    heartbeat(builder, "a", 1)
    builder.append(
        history.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)]))
    )
    heartbeat(builder, "a", 1)


def resigned_owner_rejects_commit(builder: HistoryBuilder) -> None:
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    builder.append(history.ShardResigned, broker=1, shard=0)
    commit(builder, writes=False, code=ErrorCode.UNKNOWN_MEMBER_ID)


def former_owner_expires_member(builder: HistoryBuilder) -> None:
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    builder.append(
        history.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)]))
    )
    builder.append(history.MemberExpired, group_id="g", member_id="a", reason="no heartbeat")


def stored_commit_waits_for_its_response(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder, responds=False)
    builder.at_ms += 200
    heartbeat(builder, "a", 1)


def unassigned_partition_is_lost(builder: HistoryBuilder) -> None:
    builder.append(history.CallbackDue, process="p", call="lost", partitions=(("t", 0),))


def request_gets_two_responses(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")
    asked = builder.receive_request(HEARTBEAT, message)
    builder.send_response(asked, HeartbeatResponse(error_code=16))
    builder.history._listeners[history.ResponseSent][:] = [
        listener
        for listener in builder.history._listeners[history.ResponseSent]
        if "ResponsesChecker" in listener.__qualname__
    ]
    builder.send_response(asked, HeartbeatResponse(error_code=16))


BROKEN: dict[Callable[[HistoryBuilder], None], str] = {
    generation_is_skipped: "generations",
    group_exceeds_maximum_size: "generations",
    partition_is_assigned_twice: "assignments",
    partition_moves_in_one_rebalance: "cooperative-handover",
    partition_is_owned_twice: "partition-owners",
    stored_assignment_was_not_sent: "sync-responses",
    assignment_changes: "sync-responses",
    generation_is_sent_before_durable: "join-responses",
    member_stays_without_rejoin: "join-responses",
    stale_heartbeat_is_accepted: "generation-fence",
    current_member_gets_illegal_generation: "generation-fence",
    dynamic_member_is_fenced: "generation-fence",
    static_assignment_was_not_sent: "sync-responses",
    acknowledged_commit_is_not_stored: "commits",
    rejected_commit_is_stored: "commits",
    offset_expires_too_early: "commits",
    durable_record_is_not_loaded: "recovery",
    live_member_is_expired: "session-expiry",
    committing_member_is_expired: "session-expiry",
    member_gets_no_grace_after_stall: "session-expiry",
    former_owner_responds: "shard-ownership",
    resigned_owner_rejects_commit: "shard-ownership",
    former_owner_expires_member: "shard-ownership",
    stored_commit_waits_for_its_response: "prompt-responses",
    unassigned_partition_is_lost: "callbacks",
    request_gets_two_responses: "responses",
}


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_invalid_history_is_rejected(build: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        build(HistoryBuilder())
    assert violation.value.rule == BROKEN[build]


def test_valid_history_is_accepted() -> None:
    builder = HistoryBuilder()
    builder.generation(1, A, B)
    heartbeat(builder, "a", 1)
    commit(builder)
    builder.generation(2, member("a", share(0), claim(0, generation=1)), member("b", share(1)))
    heartbeat(builder, "b", 2)


@pytest.mark.parametrize("silent_ms", [1_100, 7_000])
def test_expiry_after_grace_period_is_accepted(silent_ms: int) -> None:
    """The grace period is as long as the broker was late."""
    builder = HistoryBuilder()
    joined(builder)
    stall(builder, 7_000)
    builder.at_ms += silent_ms
    expired(builder)


def test_load_of_another_shard_does_not_extend_sessions() -> None:
    """The session had ended before the pause, so its extra time does not begin there."""
    builder = HistoryBuilder()
    joined(builder)
    builder.at_ms += 1_000
    builder.append(history.ShardLoaded, shard=1, state={})
    builder.at_ms += 5_500
    stall(builder, 2_000)
    expired(builder)


@pytest.mark.parametrize("kind", [history.BrokerDied, history.LogWriteFailed])
def test_stored_commit_needs_no_response_after_a_failure(kind: type[history.HistoryEntry]) -> None:
    builder = HistoryBuilder()
    builder.generation(1, A)
    commit(builder, responds=False)
    builder.append(kind, **({"cause": "killed"} if kind is history.BrokerDied else {}))
    builder.at_ms += 200
    builder.receive_request(JOIN_GROUP, join("a"))


def test_stored_commit_of_a_cluster_may_wait_for_its_lease() -> None:
    builder = HistoryBuilder()
    builder.append(history.ZooKeeperAnswered, broker=1, sent_ms=0, session_until_ms=1_000)
    builder.generation(1, A)
    commit(builder, responds=False)
    builder.at_ms += 200
    heartbeat(builder, "a", 1)


def test_not_coordinator_from_former_owner_is_accepted() -> None:
    builder = HistoryBuilder()
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    builder.append(
        history.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)]))
    )
    commit(builder, writes=False, code=ErrorCode.NOT_COORDINATOR)
    heartbeat(builder, "a", 1, is_loaded=False)  # a loading broker accepts all heartbeats


def test_former_owner_may_reject_sync_without_protocol() -> None:
    """From version 5 on, Kafka rejects it before it looks at the group."""
    builder = HistoryBuilder()
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    builder.append(
        history.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)]))
    )
    asked = builder.receive_request(SYNC_GROUP, sync(1, "a", []))
    builder.send_response(
        asked, SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    )


def test_sync_response_may_be_from_earlier_record() -> None:
    before, after = (
        msgspec.structs.replace(B, member_id=name, instance_id="i") for name in ("b", "b-again")
    )
    builder = HistoryBuilder()
    builder.generation(1, A, before)
    asked = builder.receive_request(SYNC_GROUP, sync(1, "b", []))
    builder.append_records(group(1, A, after))
    builder.send_response(asked, SyncGroupResponse(error_code=0, assignment=share(1)))


def replaced() -> HistoryBuilder:
    """Return a history in which another member joined with the same instance id.

    Only `InstanceIdsChecker` is subscribed.
    """
    builder = HistoryBuilder(
        lambda history, settings: InstanceIdsChecker(history, Ledger(history), settings)
    )
    for name in ("a", "a-again"):
        message = msgspec.structs.replace(join(name), group_instance_id="i")
        answer = JoinGroupResponse(
            error_code=0, generation_id=1, protocol_name="", leader="", member_id=name, members=[]
        )
        builder.send_response(builder.receive_request(JOIN_GROUP, message), answer)
    return builder


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID])
def test_leave_by_replaced_static_member_is_rejected(code: ErrorCode) -> None:
    builder = replaced()
    leaver = LeaveGroupMember(member_id="a", group_instance_id="i")
    asked = builder.receive_request(LEAVE_GROUP, LeaveGroupRequest(group_id="g", members=[leaver]))
    left = LeaveGroupMemberResult(member_id="a", group_instance_id="i", error_code=code)
    answer = LeaveGroupResponse(error_code=0, members=[left])
    if code:
        builder.send_response(asked, answer)
        return
    with pytest.raises(RuleViolationError, match="a was replaced"):
        builder.send_response(asked, answer)


def test_commit_without_generation_ignores_fencing() -> None:
    builder = replaced()
    commit(builder, generation=-1)
    with pytest.raises(RuleViolationError, match="a was replaced, but its request was accepted"):
        commit(builder, generation=1)


def move_partition_to_c(*, joined_by: str, generation: int = 2) -> None:
    """Member b still owns a partition that c is assigned. A client joins as b and learns of a
    generation.
    """
    builder = HistoryBuilder(
        lambda history, settings: PartitionOwnersChecker(history, Ledger(history), settings)
    )
    builder.generation(1, B)
    asked = builder.receive_request(JOIN_GROUP, join("b"), client=joined_by)
    builder.append_records(group(2, member("b"), member("c", share(1)), awaiting=True))
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_name="",
        leader="",
        member_id="b",
        members=[],
    )
    builder.send_response(asked, answer)
    for name, generation in (("b", 1), ("c", 2)):
        builder.append(
            history.OwnershipChanged,
            process=name,
            group_id="g",
            member_id=name,
            generation=generation,
            partitions=(("t", 1),),
        )


def test_ownership_after_foreign_join_is_accepted() -> None:
    move_partition_to_c(joined_by="rogue")
    with pytest.raises(RuleViolationError, match="is owned by c"):
        move_partition_to_c(joined_by="b")


def test_ownership_after_repeated_join_is_accepted() -> None:
    """A leader that has not assigned yet gets its previous response again."""
    move_partition_to_c(joined_by="b", generation=1)
