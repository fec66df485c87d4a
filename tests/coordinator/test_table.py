"""The response table against the coordinator: every cell is requested and compared.

A cell is a request case in a group state. `fixtures` brings a group into the state and sends the
request. `EXPECT` has a check of the observable results for each response of the table.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from partage.coordinator.records import (
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    TransactionalOffsetRecord,
)
from partage.coordinator.replies import (
    CommitReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    DescribeGroupReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    SyncReply,
)
from partage.coordinator.response_table import (
    RESPONSE_ERRORS,
    RESPONSES,
    STATE_COLUMNS,
    RequestCase,
    Response,
)
from partage.coordinator.states import GroupState
from partage.coordinator.timers import JoinTimer, SessionTimer
from partage.model.errors import ErrorCode

from .fixtures import (
    ARRANGE,
    ASK,
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupFixture,
    join_as,
    variant,
)

# Responses.


class CaseResult:
    """A cell with its request and reply."""

    def __init__(self, row: RequestCase, column: GroupState | None) -> None:
        self.row = row
        self.column = column
        self.stage = GroupFixture(column)
        self.asked = ASK[row](self.stage)
        self.reply = self.stage.harness.answer_to(self.asked)

    def errors(self) -> set[ErrorCode]:
        match self.reply:
            case (
                JoinReply()
                | SyncReply()
                | HeartbeatReply()
                | DeleteGroupReply()
                | FetchOffsetsReply()
                | DescribeGroupReply()
            ):
                return {self.reply.error}
            case LeaveReply() | CommitReply():
                return set(self.reply.errors)
            case DeleteOffsetsReply():
                return {self.reply.error, *self.reply.errors}
        raise AssertionError(f"no answer, or a strange one: {self.reply}")

    def assert_nothing_happened(self) -> None:
        stage = self.stage
        assert stage.state is self.column
        assert stage.written() == []
        assert dict(stage.harness.driver.timers.armed) == stage.armed

    def assert_session_restarted(self) -> None:
        key = SessionTimer("g", self.stage.id_of(self.stage.b))
        deadline_ms = self.stage.harness.driver.timers.armed[key]
        assert deadline_ms == self.stage.harness.now_ms + SESSION_MS
        assert deadline_ms != self.stage.armed[key]

    def assert_parked(self, state: GroupState) -> None:
        assert self.reply is None
        assert self.asked.reply_to in self.stage.harness.parked()
        assert self.stage.state is state

    def join_timer_ms(self) -> int:
        return self.stage.harness.driver.timers.armed[JoinTimer("g")] - self.stage.harness.now_ms


def expect_error(seen: CaseResult) -> None:
    answer = RESPONSES[seen.row][seen.column]
    assert seen.errors() - {ErrorCode.NONE} == {RESPONSE_ERRORS[answer]}
    seen.assert_nothing_happened()


def expect_refused_commit(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.GROUP_ID_NOT_FOUND}
    seen.assert_nothing_happened()
    _, old = variant(seen.row, seen.column, knows_group_not_found=False)
    assert old == CommitReply(errors=(ErrorCode.ILLEGAL_GENERATION,))


def expect_alive(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    seen.assert_session_restarted()


def expect_alive_rebalancing(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.REBALANCE_IN_PROGRESS}
    seen.assert_session_restarted()


def expect_id_required(row: RequestCase, column: GroupState | None) -> None:
    """Check that clients from JoinGroup v4 on get their member id and nothing else happens."""
    stage, reply = variant(row, column, must_rejoin_with_id=True)
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    group = stage.harness.shard.groups["g"]
    assert reply.member_id in group.pending_members
    assert group.state is (column or GroupState.EMPTY)
    assert SessionTimer("g", reply.member_id) in stage.harness.driver.timers.armed


def expect_first_join(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == INITIAL_DELAY_MS
    expect_id_required(seen.row, seen.column)


def expect_new_join(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == REBALANCE_MS
    expect_id_required(seen.row, seen.column)


def expect_new_park(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms == seen.join_timer_ms()
    expect_id_required(seen.row, seen.column)


def expect_first_rejoin(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == INITIAL_DELAY_MS


def expect_park(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms == seen.join_timer_ms()


def expect_rebalance(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == REBALANCE_MS


def expect_current(seen: CaseResult) -> None:
    stage = seen.stage
    assert isinstance(seen.reply, JoinReply)
    assert seen.reply.error is ErrorCode.NONE
    assert seen.reply.generation == stage.harness.shard.groups["g"].generation
    leads = seen.row is RequestCase.JOIN_LEADER
    assert [m.member_id for m in seen.reply.members] == (
        [stage.id_of(stage.a), stage.id_of(stage.b)] if leads else []
    )
    assert stage.state is seen.column
    assert stage.written() == []


def expect_repeat(seen: CaseResult) -> None:
    expect_current(seen)
    stage = GroupFixture(seen.column)
    stage.harness.crash()
    stage.harness.load()
    assert stage.state is seen.column
    assert stage.harness.answer_to(ASK[seen.row](stage)) is None
    assert stage.state is GroupState.PREPARING_REBALANCE


def expect_assign(seen: CaseResult) -> None:
    assert isinstance(seen.reply, SyncReply)
    assert seen.reply.error is ErrorCode.NONE
    assert seen.stage.state is GroupState.STABLE
    assert seen.stage.written() == [seen.stage.harness.shard.groups["g"].record]
    assert seen.reply.assignment == seen.asked.assignments[seen.asked.member_id]
    stage = GroupFixture(seen.column)
    follower, leader = stage.sync_of(stage.b), stage.sync_of(stage.a)
    assert stage.harness.answer_to(follower) is None
    stage.harness.handle(leader)
    answered = {e.asked.reply_to: e.reply for e in stage.harness.trace if hasattr(e, "reply")}
    for event in (follower, leader):
        assert answered[event.reply_to].assignment == leader.assignments[event.member_id]


def expect_await(seen: CaseResult) -> None:
    seen.assert_parked(GroupState.COMPLETING_REBALANCE)


def expect_assignment(seen: CaseResult) -> None:
    assert isinstance(seen.reply, SyncReply)
    assert seen.reply.error is ErrorCode.NONE
    kept = seen.stage.harness.shard.groups["g"].assignments[seen.asked.member_id]
    assert seen.reply.assignment == kept != b""
    assert seen.stage.written() == []
    assert seen.stage.state is seen.column


def expect_leave(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    assert seen.stage.id_of(seen.stage.b) not in seen.stage.harness.shard.groups["g"].members
    assert seen.stage.state is GroupState.PREPARING_REBALANCE


def expect_leave_joining(seen: CaseResult) -> None:
    expect_leave(seen)
    assert seen.join_timer_ms() == seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms
    stage = GroupFixture(seen.column)
    for who in (stage.p, stage.a):
        stage.ask(who, join_as(stage, who, stage.id_of(who)))
    stage.ask(stage.b, ASK[seen.row](stage))
    assert stage.state is GroupState.COMPLETING_REBALANCE


def expect_commit(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    (written,) = seen.stage.written()
    assert isinstance(written, OffsetRecord)
    assert written.offset == 6
    assert seen.stage.state is (seen.column or GroupState.EMPTY)


def expect_commit_alive(seen: CaseResult) -> None:
    expect_commit(seen)
    seen.assert_session_restarted()


def expect_pending(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    (written,) = seen.stage.written()
    assert isinstance(written, TransactionalOffsetRecord)
    assert (written.producer_id, written.offset.offset) == (7, 6)
    assert seen.stage.state is (seen.column or GroupState.EMPTY)
    if seen.column is not None:
        assert dict(seen.stage.harness.driver.timers.armed) == seen.stage.armed


def expect_offsets(seen: CaseResult) -> None:
    assert isinstance(seen.reply, FetchOffsetsReply)
    assert seen.reply.error is ErrorCode.NONE
    assert [o and o.offset for o in seen.reply.offsets] == [5, None]


def expect_no_offsets(seen: CaseResult) -> None:
    assert seen.reply == FetchOffsetsReply(offsets=(None, None))


def expect_dead(seen: CaseResult) -> None:
    dead = DescribeGroupReply(
        group_id="g", error=ErrorCode.GROUP_ID_NOT_FOUND, state=GroupState.DEAD
    )
    assert seen.reply == dead
    _, old = variant(seen.row, seen.column, knows_group_not_found=False)
    assert old == msgspec.structs.replace(dead, error=ErrorCode.NONE)


def expect_plain(seen: CaseResult) -> None:
    assert isinstance(seen.reply, DescribeGroupReply)
    members = seen.stage.harness.shard.groups["g"].members
    assert (seen.reply.error, seen.reply.state) == (ErrorCode.NONE, seen.column)
    assert seen.reply.protocol == ""
    assert [(m.member_id, m.metadata) for m in seen.reply.members] == [(m, b"") for m in members]


def expect_full(seen: CaseResult) -> None:
    assert isinstance(seen.reply, DescribeGroupReply)
    group = seen.stage.harness.shard.groups["g"]
    assert (seen.reply.error, seen.reply.state) == (ErrorCode.NONE, seen.column)
    assert (seen.reply.protocol_type, seen.reply.protocol) == ("consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in seen.reply.members] == [
        (m, b"t", group.assignments[m]) for m in group.members
    ]


def expect_deleted(seen: CaseResult) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    assert seen.stage.state is None
    assert seen.stage.written() == [
        OffsetTombstone(group_id="g", topic="t", partition=0),
        OffsetTombstone(group_id="g", topic="u", partition=0),
        GroupTombstone(group_id="g"),
    ]


def expect_offsets_deleted(seen: CaseResult) -> None:
    assert seen.reply == DeleteOffsetsReply(errors=(ErrorCode.NONE, ErrorCode.NONE))
    assert "g" not in seen.stage.harness.shard.offsets
    assert len(seen.stage.written()) == 2


def expect_offsets_unused(seen: CaseResult) -> None:
    used, unused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
    assert seen.reply == DeleteOffsetsReply(errors=(used, unused))
    assert seen.stage.written() == [OffsetTombstone(group_id="g", topic="u", partition=0)]
    stage = GroupFixture(seen.column, type="connect")
    refused = stage.harness.answer_to(ASK[seen.row](stage))
    assert refused == DeleteOffsetsReply(error=ErrorCode.NON_EMPTY_GROUP)
    assert stage.written() == []


EXPECT: dict[Response, Callable[[CaseResult], None]] = {
    Response.UNKNOWN_MEMBER: expect_error,
    Response.REBALANCING: expect_error,
    Response.NOT_EMPTY: expect_error,
    Response.NOT_FOUND: expect_error,
    Response.REFUSED_COMMIT: expect_refused_commit,
    Response.ALIVE: expect_alive,
    Response.ALIVE_REBALANCING: expect_alive_rebalancing,
    Response.CREATE: expect_first_join,
    Response.FIRST_JOIN: expect_first_join,
    Response.NEW_JOIN: expect_new_join,
    Response.NEW_PARK: expect_new_park,
    Response.FIRST_REJOIN: expect_first_rejoin,
    Response.PARK: expect_park,
    Response.REBALANCE: expect_rebalance,
    Response.REPEAT: expect_repeat,
    Response.CURRENT: expect_current,
    Response.ASSIGN: expect_assign,
    Response.AWAIT: expect_await,
    Response.ASSIGNMENT: expect_assignment,
    Response.LEAVE_JOINING: expect_leave_joining,
    Response.LEAVE: expect_leave,
    Response.COMMIT: expect_commit,
    Response.COMMIT_ALIVE: expect_commit_alive,
    Response.PENDING: expect_pending,
    Response.ILLEGAL_GENERATION: expect_error,
    Response.OFFSETS: expect_offsets,
    Response.NO_OFFSETS: expect_no_offsets,
    Response.DEAD: expect_dead,
    Response.PLAIN: expect_plain,
    Response.FULL: expect_full,
    Response.DELETED: expect_deleted,
    Response.OFFSETS_DELETED: expect_offsets_deleted,
    Response.OFFSETS_UNUSED: expect_offsets_unused,
}


@pytest.mark.parametrize("column", STATE_COLUMNS, ids=lambda column: str(column or "missing"))
@pytest.mark.parametrize("row", RequestCase, ids=lambda row: row.name)
def test_response_matches_table(row: RequestCase, column: GroupState | None) -> None:
    EXPECT[RESPONSES[row][column]](CaseResult(row, column))


def test_table_cases_and_responses_are_covered() -> None:
    assert ASK.keys() == set(RequestCase) == RESPONSES.keys()
    assert ARRANGE.keys() == set(STATE_COLUMNS) == {None, *GroupState} - {GroupState.DEAD}
    given = {answer for answers in RESPONSES.values() for answer in answers.values()}
    assert EXPECT.keys() == set(Response) == given
