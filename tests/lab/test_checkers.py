"""Each checker rejects a history that breaks its rule."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from partage.coordinator.outcome import SESSION_EXPIRED_REASON
from partage.coordinator.records import OffsetTombstone
from partage.lab import history as told
from partage.lab.checkers import Ledger
from partage.lab.checkers.instance_ids import InstanceIdsChecker
from partage.lab.checkers.partition_owners import PartitionOwnersChecker
from partage.lab.history import RuleViolationError
from partage.model.errors import ErrorCode
from partage.store.formats import encode_record
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


def generation_is_skipped(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(3, A)


def group_exceeds_maximum_size(story: HistoryBuilder) -> None:
    story.generation(1, A, B, member("c"))


def partition_is_assigned_twice(story: HistoryBuilder) -> None:
    story.generation(1, A, member("b", share(0)))


def partition_moves_in_one_rebalance(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(2, member("a", said=claim(0, generation=1)), member("b", share(0)))


def partition_is_owned_twice(story: HistoryBuilder) -> None:
    story.generation(1, A, B)
    for name in ("a", "b"):
        story.append(
            told.OwnershipChanged,
            process=name,
            group_id="g",
            member_id=name,
            generation=1,
            partitions=(("t", 0),),
        )


def stored_assignment_was_not_sent(story: HistoryBuilder) -> None:
    story.receive_request(JOIN_GROUP, join("a"))
    story.append_records(group(1, A, awaiting=True))
    story.append_records(group(1, A))


def assignment_changes(story: HistoryBuilder) -> None:
    story.generation(1, A)
    for said in (share(0), share(1)):
        asked = story.receive_request(SYNC_GROUP, sync(1, "a", []))
        story.send_response(asked, SyncGroupResponse(error_code=0, assignment=said))


def generation_is_sent_before_durable(story: HistoryBuilder) -> None:
    asked = story.receive_request(JOIN_GROUP, join("a"))
    story.append_records(group(1, A, awaiting=True), durable=False)
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="cooperative-sticky",
        leader="a",
        member_id="a",
        members=[],
    )
    story.send_response(asked, answer)


def member_stays_without_rejoin(story: HistoryBuilder) -> None:
    story.generation(1, A, B)
    story.receive_request(JOIN_GROUP, join("a"))
    story.append_records(group(2, A, B, awaiting=True))


def stale_heartbeat_is_accepted(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(2, A)
    heartbeat(story, "a", 1)


def current_member_gets_illegal_generation(story: HistoryBuilder) -> None:
    story.generation(1, A)
    heartbeat(story, "a", 1, code=ErrorCode.ILLEGAL_GENERATION)


def dynamic_member_is_fenced(story: HistoryBuilder) -> None:
    story.generation(1, A)
    heartbeat(story, "b", 1, code=ErrorCode.FENCED_INSTANCE_ID)


def static_assignment_was_not_sent(story: HistoryBuilder) -> None:
    story.receive_request(JOIN_GROUP, join("a"))
    static = msgspec.structs.replace(A, instance_id="i")
    story.append_records(group(1, static, awaiting=True))
    story.append_records(group(1, static))


def acknowledged_commit_is_not_stored(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story, writes=False)


def rejected_commit_is_stored(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story, code=ErrorCode.REBALANCE_IN_PROGRESS)


def offset_expires_too_early(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    story.append_records(OffsetTombstone(group_id="g", topic="t", partition=0))


def durable_record_is_not_loaded(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.append(told.BrokerDied, cause="killed")
    story.append(told.ShardLoaded, state={})


def joined(story: HistoryBuilder) -> None:
    asked = story.receive_request(JOIN_GROUP, join("a"))
    story.generation(1, B, A)
    answer = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="cooperative-sticky",
        leader="b",
        member_id="a",
        members=[],
    )
    story.send_response(asked, answer)


def expired(story: HistoryBuilder) -> None:
    story.append(told.MemberExpired, group_id="g", member_id="a", reason=SESSION_EXPIRED_REASON)


def live_member_is_expired(story: HistoryBuilder) -> None:
    joined(story)
    heartbeat(story, "a", 1)
    expired(story)


def committing_member_is_expired(story: HistoryBuilder) -> None:
    joined(story)
    story.at_ms += 5_900
    commit(story)
    story.at_ms += 200
    expired(story)


def member_gets_no_grace_after_stall(story: HistoryBuilder) -> None:
    joined(story)
    stall(story, 7_000)
    story.at_ms += 900
    expired(story)


def stall(story: HistoryBuilder, for_ms: int) -> None:
    since_ms = story.at_ms
    story.at_ms += for_ms
    story.append(told.StallEnded, began_ms=since_ms)


def former_owner_responds(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    heartbeat(story, "a", 1)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    heartbeat(story, "a", 1)


def resigned_owner_rejects_commit(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardResigned, broker=1, shard=0)
    commit(story, writes=False, code=ErrorCode.UNKNOWN_MEMBER_ID)


def former_owner_expires_member(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    story.append(told.MemberExpired, group_id="g", member_id="a", reason="no heartbeat")


def unassigned_partition_is_lost(story: HistoryBuilder) -> None:
    story.append(told.CallbackDue, process="p", call="lost", partitions=(("t", 0),))


def request_gets_two_responses(story: HistoryBuilder) -> None:
    story.generation(1, A)
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")
    asked = story.receive_request(HEARTBEAT, message)
    story.send_response(asked, HeartbeatResponse(error_code=16))
    story.history._listeners[told.ResponseSent][:] = [
        listener
        for listener in story.history._listeners[told.ResponseSent]
        if "ResponsesChecker" in listener.__qualname__
    ]
    story.send_response(asked, HeartbeatResponse(error_code=16))


BROKEN: dict[Callable[[HistoryBuilder], None], str] = {
    generation_is_skipped: "generations",
    group_exceeds_maximum_size: "generations",
    partition_is_assigned_twice: "shares",
    partition_moves_in_one_rebalance: "two-steps",
    partition_is_owned_twice: "owners",
    stored_assignment_was_not_sent: "syncs",
    assignment_changes: "syncs",
    generation_is_sent_before_durable: "joins",
    member_stays_without_rejoin: "joins",
    stale_heartbeat_is_accepted: "fencing",
    current_member_gets_illegal_generation: "fencing",
    dynamic_member_is_fenced: "fencing",
    static_assignment_was_not_sent: "syncs",
    acknowledged_commit_is_not_stored: "commits",
    rejected_commit_is_stored: "commits",
    offset_expires_too_early: "commits",
    durable_record_is_not_loaded: "recovery",
    live_member_is_expired: "expiry",
    committing_member_is_expired: "expiry",
    member_gets_no_grace_after_stall: "expiry",
    former_owner_responds: "tenures",
    resigned_owner_rejects_commit: "tenures",
    former_owner_expires_member: "tenures",
    unassigned_partition_is_lost: "callbacks",
    request_gets_two_responses: "answers",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_invalid_history_is_rejected(tell: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        tell(HistoryBuilder())
    assert violation.value.rule == BROKEN[tell]


def test_valid_history_is_accepted() -> None:
    story = HistoryBuilder()
    story.generation(1, A, B)
    heartbeat(story, "a", 1)
    commit(story)
    story.generation(2, member("a", share(0), claim(0, generation=1)), member("b", share(1)))
    heartbeat(story, "b", 2)


@pytest.mark.parametrize("silent_ms", [1_100, 7_000])
def test_expiry_after_grace_period_is_accepted(silent_ms: int) -> None:
    """The grace period is as long as the broker was late."""
    story = HistoryBuilder()
    joined(story)
    stall(story, 7_000)
    story.at_ms += silent_ms
    expired(story)


def test_not_coordinator_from_former_owner_is_accepted() -> None:
    story = HistoryBuilder()
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    commit(story, writes=False, code=ErrorCode.NOT_COORDINATOR)
    heartbeat(story, "a", 1, is_loaded=False)  # a loading broker accepts all heartbeats


def test_sync_response_may_be_from_earlier_record() -> None:
    before, after = (
        msgspec.structs.replace(B, member_id=name, instance_id="i") for name in ("b", "b-again")
    )
    story = HistoryBuilder()
    story.generation(1, A, before)
    asked = story.receive_request(SYNC_GROUP, sync(1, "b", []))
    story.append_records(group(1, A, after))
    story.send_response(asked, SyncGroupResponse(error_code=0, assignment=share(1)))


def replaced() -> HistoryBuilder:
    """Return a history in which another member joined with the same instance id.

    Only `InstanceIdsChecker` is subscribed.
    """
    story = HistoryBuilder(
        lambda history, settings: InstanceIdsChecker(history, Ledger(history), settings)
    )
    for name in ("a", "a-again"):
        message = msgspec.structs.replace(join(name), group_instance_id="i")
        answer = JoinGroupResponse(
            error_code=0, generation_id=1, protocol_name="", leader="", member_id=name, members=[]
        )
        story.send_response(story.receive_request(JOIN_GROUP, message), answer)
    return story


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID])
def test_leave_by_replaced_static_member_is_rejected(code: ErrorCode) -> None:
    story = replaced()
    leaver = LeaveGroupMember(member_id="a", group_instance_id="i")
    asked = story.receive_request(LEAVE_GROUP, LeaveGroupRequest(group_id="g", members=[leaver]))
    left = LeaveGroupMemberResult(member_id="a", group_instance_id="i", error_code=code)
    answer = LeaveGroupResponse(error_code=0, members=[left])
    if code:
        story.send_response(asked, answer)
        return
    with pytest.raises(RuleViolationError, match="a was replaced"):
        story.send_response(asked, answer)


def test_commit_without_generation_ignores_fencing() -> None:
    story = replaced()
    commit(story, generation=-1)
    with pytest.raises(RuleViolationError, match="a was replaced, but its request was accepted"):
        commit(story, generation=1)


def move_partition_to_c(*, joined_by: str, told_of: int = 2) -> None:
    """Member b still owns a partition that c is assigned. A client joins as b and learns of a
    generation.
    """
    story = HistoryBuilder(
        lambda history, settings: PartitionOwnersChecker(history, Ledger(history), settings)
    )
    story.generation(1, B)
    asked = story.receive_request(JOIN_GROUP, join("b"), client=joined_by)
    story.append_records(group(2, member("b"), member("c", share(1)), awaiting=True))
    answer = JoinGroupResponse(
        error_code=0, generation_id=told_of, protocol_name="", leader="", member_id="b", members=[]
    )
    story.send_response(asked, answer)
    for name, generation in (("b", 1), ("c", 2)):
        story.append(
            told.OwnershipChanged,
            process=name,
            group_id="g",
            member_id=name,
            generation=generation,
            partitions=(("t", 1),),
        )


def test_ownership_after_foreign_join_is_accepted() -> None:
    move_partition_to_c(joined_by="stranger")
    with pytest.raises(RuleViolationError, match="is owned by c"):
        move_partition_to_c(joined_by="b")


def test_ownership_after_repeated_join_is_accepted() -> None:
    """A leader that has not assigned yet gets its previous response again."""
    move_partition_to_c(joined_by="b", told_of=1)
