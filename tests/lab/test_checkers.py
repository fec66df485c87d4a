"""Each rule is broken by a history that breaks it, told by hand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

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


def a_generation_is_left_out(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(3, A)


def a_group_grows_too_large(story: HistoryBuilder) -> None:
    story.generation(1, A, B, member("c"))


def a_partition_is_given_twice(story: HistoryBuilder) -> None:
    story.generation(1, A, member("b", share(0)))


def a_partition_goes_over_in_one_step(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(2, member("a", said=claim(0, generation=1)), member("b", share(0)))


def a_partition_is_held_twice(story: HistoryBuilder) -> None:
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


def what_is_stored_was_never_sent(story: HistoryBuilder) -> None:
    story.receive_request(JOIN_GROUP, join("a"))
    story.append_records(group(1, A, awaiting=True))
    story.append_records(group(1, A))


def an_assignment_changes(story: HistoryBuilder) -> None:
    story.generation(1, A)
    for said in (share(0), share(1)):
        asked = story.receive_request(SYNC_GROUP, sync(1, "a", []))
        story.send_response(asked, SyncGroupResponse(error_code=0, assignment=said))


def a_generation_is_told_before_it_is_durable(story: HistoryBuilder) -> None:
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


def a_member_stays_without_joining(story: HistoryBuilder) -> None:
    story.generation(1, A, B)
    story.receive_request(JOIN_GROUP, join("a"))
    story.append_records(group(2, A, B, awaiting=True))


def a_stale_heartbeat_is_accepted(story: HistoryBuilder) -> None:
    story.generation(1, A)
    story.generation(2, A)
    heartbeat(story, "a", 1)


def a_member_is_told_that_it_is_of_another_generation(story: HistoryBuilder) -> None:
    story.generation(1, A)
    heartbeat(story, "a", 1, code=ErrorCode.ILLEGAL_GENERATION)


def one_without_an_instance_is_fenced(story: HistoryBuilder) -> None:
    story.generation(1, A)
    heartbeat(story, "b", 1, code=ErrorCode.FENCED_INSTANCE_ID)


def what_a_static_member_is_given_was_never_sent(story: HistoryBuilder) -> None:
    story.receive_request(JOIN_GROUP, join("a"))
    static = msgspec.structs.replace(A, instance_id="i")
    story.append_records(group(1, static, awaiting=True))
    story.append_records(group(1, static))


def a_commit_is_acknowledged_and_not_stored(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story, writes=False)


def a_commit_is_refused_and_stored(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story, code=ErrorCode.REBALANCE_IN_PROGRESS)


def an_offset_goes_before_its_time(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    story.append_records(OffsetTombstone(group_id="g", topic="t", partition=0))


def what_was_durable_is_not_loaded(story: HistoryBuilder) -> None:
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
    reason = "no heartbeat within its session timeout"
    story.append(told.MemberExpired, group_id="g", member_id="a", reason=reason)


def a_member_that_lives_is_expired(story: HistoryBuilder) -> None:
    joined(story)
    heartbeat(story, "a", 1)
    expired(story)


def a_member_that_has_committed_is_expired(story: HistoryBuilder) -> None:
    joined(story)
    story.at_ms += 5_900
    commit(story)
    story.at_ms += 200
    expired(story)


def a_member_is_not_waited_for_after_a_standstill(story: HistoryBuilder) -> None:
    joined(story)
    stand_still(story, 7_000)
    story.at_ms += 900
    expired(story)


def stand_still(story: HistoryBuilder, for_ms: int) -> None:
    since_ms = story.at_ms
    story.at_ms += for_ms
    story.append(told.StallEnded, began_ms=since_ms)


def a_broker_answers_for_what_another_has_loaded(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    heartbeat(story, "a", 1)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    heartbeat(story, "a", 1)


def a_broker_refuses_what_it_has_given_up(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardResigned, broker=1, shard=0)
    commit(story, writes=False, code=ErrorCode.UNKNOWN_MEMBER_ID)


def a_broker_expires_a_member_of_what_another_has_loaded(story: HistoryBuilder) -> None:
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    story.append(told.MemberExpired, group_id="g", member_id="a", reason="no heartbeat")


def a_listener_loses_what_it_never_had(story: HistoryBuilder) -> None:
    story.append(told.CallbackDue, process="p", call="lost", partitions=(("t", 0),))


def a_request_is_answered_twice(story: HistoryBuilder) -> None:
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
    a_generation_is_left_out: "generations",
    a_group_grows_too_large: "generations",
    a_partition_is_given_twice: "shares",
    a_partition_goes_over_in_one_step: "two-steps",
    a_partition_is_held_twice: "owners",
    what_is_stored_was_never_sent: "syncs",
    an_assignment_changes: "syncs",
    a_generation_is_told_before_it_is_durable: "joins",
    a_member_stays_without_joining: "joins",
    a_stale_heartbeat_is_accepted: "fencing",
    a_member_is_told_that_it_is_of_another_generation: "fencing",
    one_without_an_instance_is_fenced: "fencing",
    what_a_static_member_is_given_was_never_sent: "syncs",
    a_commit_is_acknowledged_and_not_stored: "commits",
    a_commit_is_refused_and_stored: "commits",
    an_offset_goes_before_its_time: "commits",
    what_was_durable_is_not_loaded: "recovery",
    a_member_that_lives_is_expired: "expiry",
    a_member_that_has_committed_is_expired: "expiry",
    a_member_is_not_waited_for_after_a_standstill: "expiry",
    a_broker_answers_for_what_another_has_loaded: "tenures",
    a_broker_refuses_what_it_has_given_up: "tenures",
    a_broker_expires_a_member_of_what_another_has_loaded: "tenures",
    a_listener_loses_what_it_never_had: "callbacks",
    a_request_is_answered_twice: "answers",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_a_history_that_cannot_be_is_refused(tell: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        tell(HistoryBuilder())
    assert violation.value.rule == BROKEN[tell]


def test_a_history_that_can_be_is_not() -> None:
    story = HistoryBuilder()
    story.generation(1, A, B)
    heartbeat(story, "a", 1)
    commit(story)
    story.generation(2, member("a", share(0), claim(0, generation=1)), member("b", share(1)))
    heartbeat(story, "b", 2)


@pytest.mark.parametrize("silent_ms", [1_100, 7_000])
def test_who_was_waited_for_may_be_expired(silent_ms: int) -> None:
    """As long as the broker was late."""
    story = HistoryBuilder()
    joined(story)
    stand_still(story, 7_000)
    story.at_ms += silent_ms
    expired(story)


def test_who_has_given_a_shard_up_may_say_so() -> None:
    story = HistoryBuilder()
    story.append(told.ShardLoaded, broker=1, epoch=1, state={})
    story.generation(1, A)
    story.append(told.ShardLoaded, broker=2, epoch=2, state=dict(map(encode_record, [group(1, A)])))
    commit(story, writes=False, code=ErrorCode.NOT_COORDINATOR)
    heartbeat(story, "a", 1, is_loaded=False)  # by a broker that loads: all is well


def test_a_follower_hears_what_was_stored_before_a_static_member_came_back() -> None:
    before, after = (
        msgspec.structs.replace(B, member_id=name, instance_id="i") for name in ("b", "b-again")
    )
    story = HistoryBuilder()
    story.generation(1, A, before)
    asked = story.receive_request(SYNC_GROUP, sync(1, "b", []))
    story.append_records(group(1, A, after))
    story.send_response(asked, SyncGroupResponse(error_code=0, assignment=share(1)))


def replaced() -> HistoryBuilder:
    """For the instance id of one member another has joined; only `Instances` listens."""
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
def test_who_was_replaced_cannot_leave_for_its_successor(code: ErrorCode) -> None:
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


def test_a_commit_of_no_generation_is_in_nobodys_name() -> None:
    story = replaced()
    commit(story, generation=-1)
    with pytest.raises(RuleViolationError, match="a was replaced, but its request was accepted"):
        commit(story, generation=1)


def a_partition_goes_over(*, joined_by: str, told_of: int = 2) -> None:
    """Somebody joins as b, who still holds what c is given, and is told of a generation."""
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


def test_who_was_joined_for_by_somebody_else_has_not_heard_of_it() -> None:
    a_partition_goes_over(joined_by="stranger")
    with pytest.raises(RuleViolationError, match="is owned by c"):
        a_partition_goes_over(joined_by="b")


def test_who_joined_the_generation_before_once_more_has_not_heard_of_this_one() -> None:
    """A leader that had not assigned yet is told again what it has been told."""
    a_partition_goes_over(joined_by="b", told_of=1)
