"""The table of answers against the coordinator: every cell is asked for and compared.

A cell is a row, what is asked, in a column, the group's state. `ASK` asks it, `ARRANGE` brings the
group there, and `EXPECT` says what the answer that stands in the table looks like from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from partage.coordinator.answers import ANSWERS, COLUMNS, ERRORS, Answer, Row
from partage.coordinator.events import (
    DeleteGroup,
    DeleteOffsets,
    Describe,
    FetchOffsets,
    OffsetToCommit,
    Protocol,
)
from partage.coordinator.records import GroupRemoved, OffsetCommitted, OffsetRemoved
from partage.coordinator.replies import (
    CommitReply,
    DeleteOffsetsReply,
    DeleteReply,
    DescribeReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    OffsetsReply,
    Reply,
    SyncReply,
)
from partage.coordinator.states import GroupState
from partage.coordinator.timers import JoinTimer, SessionTimer
from partage.model.errors import ErrorCode

from .actors import Actor
from .harness import Asked, Harness

SESSION_MS = 10_000
REBALANCE_MS = 30_000
INITIAL_DELAY_MS = 3_000


def actor(name: str) -> Actor:
    return Actor(name, None, SESSION_MS, REBALANCE_MS, must_rejoin=False, may_skip=True)


class Stage:
    """A group in some state, with a leader a, a follower b, and somebody pending, p.

    It has committed offset 5 of t-0, which its members subscribe to, and of u-0, which nobody does.
    """

    def __init__(self, column: GroupState | None, type: str = "consumer") -> None:
        self.harness = Harness()
        self.type = type
        self.a, self.b, self.c, self.p = (actor(name) for name in "abcp")
        self.p = replace(self.p, must_rejoin=True)
        self.column = column
        ARRANGE[column](self)
        self.harness.tick(1_000)
        self.harness.trace.clear()
        self.armed = dict(self.harness.driver.timers.armed)
        self.logged = len(self.harness.log.durable)
        assert self.state is column

    @property
    def state(self) -> GroupState | None:
        """The group's state; None if there is no group."""
        group = self.harness.shard.groups.get("g")
        return None if group is None else group.state

    def ask(self, who: Actor, event: Asked) -> Reply | None:
        """Ask in somebody's name, who hears the answer."""
        if isinstance(event, msgspec.Struct) and hasattr(event, "protocol_type"):
            event = msgspec.structs.replace(event, protocol_type=self.type)
        reply = self.harness.answer_to(event)
        if reply is not None:
            who.hear(event, reply, self.harness.now_ms)
        return reply

    def join(self, *joining: Actor) -> None:
        """All join, and hear of the generation if it begins with that."""
        events = [who.join(self.harness, "g", who.seat("g").member_id) for who in joining]
        events = [msgspec.structs.replace(e, protocol_type=self.type) for e in events]
        before = len(self.harness.trace)
        for event in events:
            self.harness.handle(event)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.harness.tick(2 * INITIAL_DELAY_MS)
        for entry in self.harness.trace[before:]:
            for who, event in zip(joining, events, strict=True):
                if getattr(entry, "asked", None) is event and hasattr(entry, "reply"):
                    who.hear(event, entry.reply, self.harness.now_ms)

    def sync(self, *syncing: Actor) -> None:
        for who in syncing:
            self.ask(who, self.sync_of(who))

    def sync_of(self, who: Actor) -> Asked:
        return who.sync(self.harness, "g", self.id_of(who), self.generation)

    def id_of(self, who: Actor) -> str:
        """Somebody's member id, or one that could be."""
        return who.seat("g").member_id or f"{who.name}-0"

    @property
    def generation(self) -> int:
        """The generation that the members know."""
        return max(self.a.seat("g").generation, 1)

    def written(self) -> list[object]:
        """What was stored since the stage was set."""
        return list(self.harness.log.durable[self.logged :])

    def words(self) -> dict[str, object]:
        """What every request has."""
        harness = self.harness
        return {"at_ms": harness.now_ms, "reply_to": harness.ticket(), "group_id": "g"}


# The columns.


def arrange_nothing(stage: Stage) -> None:
    pass


def arrange_completing(stage: Stage) -> None:
    offsets = tuple(OffsetToCommit(topic=t, partition=0, offset=5) for t in "tu")
    stage.ask(stage.a, stage.a.commit(stage.harness, "g", "", -1, offsets))
    stage.join(stage.a, stage.b)
    stage.ask(stage.p, stage.p.join(stage.harness, "g", ""))


def arrange_stable(stage: Stage) -> None:
    arrange_completing(stage)
    stage.sync(stage.a, stage.b)


def arrange_preparing(stage: Stage) -> None:
    arrange_stable(stage)
    stage.ask(stage.c, stage.c.join(stage.harness, "g", ""))


def arrange_empty(stage: Stage) -> None:
    arrange_stable(stage)
    ids = (stage.id_of(stage.a), stage.id_of(stage.b))
    stage.ask(stage.a, stage.a.leave(stage.harness, "g", ids))
    stage.harness.tick(0)  # nobody is waited for but the pending one, and it is not for long


ARRANGE: dict[GroupState | None, Callable[[Stage], None]] = {
    None: arrange_nothing,
    GroupState.EMPTY: arrange_empty,
    GroupState.PREPARING_REBALANCE: arrange_preparing,
    GroupState.COMPLETING_REBALANCE: arrange_completing,
    GroupState.STABLE: arrange_stable,
}

# The rows.


def join_as(stage: Stage, who: Actor, member_id: str) -> Asked:
    event = who.join(stage.harness, "g", member_id)
    return msgspec.structs.replace(event, protocol_type=stage.type)


def changed(who: Actor) -> Actor:
    return replace(who, protocols=(Protocol("range", b"t,u"),))


def commit_as(stage: Stage, who: Actor, member_id: str, generation: int) -> Asked:
    offset = OffsetToCommit(topic="t", partition=0, offset=6)
    return who.commit(stage.harness, "g", member_id, generation, (offset,))


ASK: dict[Row, Callable[[Stage], Asked]] = {
    Row.JOIN_NEW: lambda s: join_as(s, actor("n"), ""),
    Row.JOIN_PENDING: lambda s: join_as(s, s.p, s.id_of(s.p)),
    Row.JOIN_LEADER: lambda s: join_as(s, s.a, s.id_of(s.a)),
    Row.JOIN_CHANGED: lambda s: join_as(s, changed(s.b), s.id_of(s.b)),
    Row.JOIN_SAME: lambda s: join_as(s, s.b, s.id_of(s.b)),
    Row.SYNC_LEADER: lambda s: s.sync_of(s.a),
    Row.SYNC_FOLLOWER: lambda s: s.sync_of(s.b),
    Row.HEARTBEAT: lambda s: s.b.heartbeat(s.harness, "g", s.id_of(s.b), s.generation),
    Row.LEAVE: lambda s: s.b.leave(s.harness, "g", (s.id_of(s.b),)),
    Row.COMMIT_MEMBER: lambda s: commit_as(s, s.b, s.id_of(s.b), s.generation),
    Row.COMMIT_SIMPLE: lambda s: commit_as(s, s.b, "", -1),
    Row.FETCH: lambda s: FetchOffsets(**s.words(), partitions=(("t", 0), ("t", 9))),
    Row.DESCRIBE: lambda s: Describe(**s.words()),
    Row.DELETE: lambda s: DeleteGroup(**s.words()),
    Row.DELETE_OFFSETS: lambda s: DeleteOffsets(**s.words(), partitions=(("t", 0), ("u", 0))),
}


def variant(row: Row, column: GroupState | None, **changes: object) -> tuple[Stage, Reply | None]:
    """The cell once more, asked by a client of other capabilities."""
    stage = Stage(column)
    event = msgspec.structs.replace(ASK[row](stage), **changes)
    return stage, stage.harness.answer_to(event)


# The answers.


class Seen:
    """A cell, what was asked for it, and what came back."""

    def __init__(self, row: Row, column: GroupState | None) -> None:
        self.row = row
        self.column = column
        self.stage = Stage(column)
        self.asked = ASK[row](self.stage)
        self.reply = self.stage.harness.answer_to(self.asked)

    def errors(self) -> set[ErrorCode]:
        match self.reply:
            case (
                JoinReply()
                | SyncReply()
                | HeartbeatReply()
                | DeleteReply()
                | OffsetsReply()
                | DescribeReply()
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

    def assert_session_began_anew(self) -> None:
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


def expect_error(seen: Seen) -> None:
    answer = ANSWERS[seen.row][seen.column]
    assert seen.errors() - {ErrorCode.NONE} == {ERRORS[answer]}
    seen.assert_nothing_happened()


def expect_refused_commit(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.GROUP_ID_NOT_FOUND}
    seen.assert_nothing_happened()
    _, old = variant(seen.row, seen.column, knows_group_not_found=False)
    assert old == CommitReply(errors=(ErrorCode.ILLEGAL_GENERATION,))


def expect_alive(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    seen.assert_session_began_anew()


def expect_alive_rebalancing(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.REBALANCE_IN_PROGRESS}
    seen.assert_session_began_anew()


def expect_id_required(row: Row, column: GroupState | None) -> None:
    """What clients from JoinGroup v4 on are told: their id, and nothing else happens."""
    stage, reply = variant(row, column, must_rejoin_with_id=True)
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    group = stage.harness.shard.groups["g"]
    assert reply.member_id in group.pending
    assert group.state is (column or GroupState.EMPTY)
    assert SessionTimer("g", reply.member_id) in stage.harness.driver.timers.armed


def expect_first_join(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == INITIAL_DELAY_MS
    expect_id_required(seen.row, seen.column)


def expect_new_join(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == REBALANCE_MS
    expect_id_required(seen.row, seen.column)


def expect_new_park(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms == seen.join_timer_ms()
    expect_id_required(seen.row, seen.column)


def expect_first_rejoin(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == INITIAL_DELAY_MS


def expect_park(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms == seen.join_timer_ms()


def expect_rebalance(seen: Seen) -> None:
    seen.assert_parked(GroupState.PREPARING_REBALANCE)
    assert seen.join_timer_ms() == REBALANCE_MS


def expect_current(seen: Seen) -> None:
    stage = seen.stage
    assert isinstance(seen.reply, JoinReply)
    assert seen.reply.error is ErrorCode.NONE
    assert seen.reply.generation == stage.harness.shard.groups["g"].generation
    leads = seen.row is Row.JOIN_LEADER
    assert [m.member_id for m in seen.reply.members] == (
        [stage.id_of(stage.a), stage.id_of(stage.b)] if leads else []
    )
    assert stage.state is seen.column
    assert stage.written() == []


def expect_repeat(seen: Seen) -> None:
    expect_current(seen)
    stage = Stage(seen.column)
    stage.harness.crash()
    stage.harness.load()
    assert stage.state is seen.column
    assert stage.harness.answer_to(ASK[seen.row](stage)) is None
    assert stage.state is GroupState.PREPARING_REBALANCE


def expect_assign(seen: Seen) -> None:
    assert isinstance(seen.reply, SyncReply)
    assert seen.reply.error is ErrorCode.NONE
    assert seen.stage.state is GroupState.STABLE
    assert seen.stage.written() == [seen.stage.harness.shard.groups["g"].saved]
    assert seen.reply.assignment == seen.asked.assignments[seen.asked.member_id]
    stage = Stage(seen.column)
    follower, leader = stage.sync_of(stage.b), stage.sync_of(stage.a)
    assert stage.harness.answer_to(follower) is None
    stage.harness.handle(leader)
    answered = {e.asked.reply_to: e.reply for e in stage.harness.trace if hasattr(e, "reply")}
    for event in (follower, leader):
        assert answered[event.reply_to].assignment == leader.assignments[event.member_id]


def expect_await(seen: Seen) -> None:
    seen.assert_parked(GroupState.COMPLETING_REBALANCE)


def expect_assignment(seen: Seen) -> None:
    assert isinstance(seen.reply, SyncReply)
    assert seen.reply.error is ErrorCode.NONE
    kept = seen.stage.harness.shard.groups["g"].assignments[seen.asked.member_id]
    assert seen.reply.assignment == kept != b""
    assert seen.stage.written() == []
    assert seen.stage.state is seen.column


def expect_leave(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    assert seen.stage.id_of(seen.stage.b) not in seen.stage.harness.shard.groups["g"].members
    assert seen.stage.state is GroupState.PREPARING_REBALANCE


def expect_leave_joining(seen: Seen) -> None:
    expect_leave(seen)
    assert seen.join_timer_ms() == seen.stage.armed[JoinTimer("g")] - seen.stage.harness.now_ms
    stage = Stage(seen.column)
    for who in (stage.p, stage.a):
        stage.ask(who, join_as(stage, who, stage.id_of(who)))
    stage.ask(stage.b, ASK[seen.row](stage))
    assert stage.state is GroupState.COMPLETING_REBALANCE


def expect_commit(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    (written,) = seen.stage.written()
    assert isinstance(written, OffsetCommitted)
    assert written.offset == 6
    assert seen.stage.state is (seen.column or GroupState.EMPTY)


def expect_commit_alive(seen: Seen) -> None:
    expect_commit(seen)
    seen.assert_session_began_anew()


def expect_offsets(seen: Seen) -> None:
    assert isinstance(seen.reply, OffsetsReply)
    assert seen.reply.error is ErrorCode.NONE
    assert [o and o.offset for o in seen.reply.offsets] == [5, None]


def expect_no_offsets(seen: Seen) -> None:
    assert seen.reply == OffsetsReply(offsets=(None, None))


def expect_dead(seen: Seen) -> None:
    dead = DescribeReply(group_id="g", error=ErrorCode.GROUP_ID_NOT_FOUND, state=GroupState.DEAD)
    assert seen.reply == dead
    _, old = variant(seen.row, seen.column, knows_group_not_found=False)
    assert old == msgspec.structs.replace(dead, error=ErrorCode.NONE)


def expect_plain(seen: Seen) -> None:
    assert isinstance(seen.reply, DescribeReply)
    members = seen.stage.harness.shard.groups["g"].members
    assert (seen.reply.error, seen.reply.state) == (ErrorCode.NONE, seen.column)
    assert seen.reply.protocol == ""
    assert [(m.member_id, m.metadata) for m in seen.reply.members] == [(m, b"") for m in members]


def expect_full(seen: Seen) -> None:
    assert isinstance(seen.reply, DescribeReply)
    group = seen.stage.harness.shard.groups["g"]
    assert (seen.reply.error, seen.reply.state) == (ErrorCode.NONE, seen.column)
    assert (seen.reply.protocol_type, seen.reply.protocol) == ("consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in seen.reply.members] == [
        (m, b"t", group.assignments[m]) for m in group.members
    ]


def expect_deleted(seen: Seen) -> None:
    assert seen.errors() == {ErrorCode.NONE}
    assert seen.stage.state is None
    assert seen.stage.written() == [
        OffsetRemoved(group_id="g", topic="t", partition=0),
        OffsetRemoved(group_id="g", topic="u", partition=0),
        GroupRemoved(group_id="g"),
    ]


def expect_offsets_deleted(seen: Seen) -> None:
    assert seen.reply == DeleteOffsetsReply(errors=(ErrorCode.NONE, ErrorCode.NONE))
    assert "g" not in seen.stage.harness.shard.offsets
    assert len(seen.stage.written()) == 2


def expect_offsets_unused(seen: Seen) -> None:
    used, unused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
    assert seen.reply == DeleteOffsetsReply(errors=(used, unused))
    assert seen.stage.written() == [OffsetRemoved(group_id="g", topic="u", partition=0)]
    stage = Stage(seen.column, type="connect")
    refused = stage.harness.answer_to(ASK[seen.row](stage))
    assert refused == DeleteOffsetsReply(error=ErrorCode.NON_EMPTY_GROUP)
    assert stage.written() == []


EXPECT: dict[Answer, Callable[[Seen], None]] = {
    Answer.UNKNOWN_MEMBER: expect_error,
    Answer.REBALANCING: expect_error,
    Answer.NOT_EMPTY: expect_error,
    Answer.NOT_FOUND: expect_error,
    Answer.REFUSED_COMMIT: expect_refused_commit,
    Answer.ALIVE: expect_alive,
    Answer.ALIVE_REBALANCING: expect_alive_rebalancing,
    Answer.CREATE: expect_first_join,
    Answer.FIRST_JOIN: expect_first_join,
    Answer.NEW_JOIN: expect_new_join,
    Answer.NEW_PARK: expect_new_park,
    Answer.FIRST_REJOIN: expect_first_rejoin,
    Answer.PARK: expect_park,
    Answer.REBALANCE: expect_rebalance,
    Answer.REPEAT: expect_repeat,
    Answer.CURRENT: expect_current,
    Answer.ASSIGN: expect_assign,
    Answer.AWAIT: expect_await,
    Answer.ASSIGNMENT: expect_assignment,
    Answer.LEAVE_JOINING: expect_leave_joining,
    Answer.LEAVE: expect_leave,
    Answer.COMMIT: expect_commit,
    Answer.COMMIT_ALIVE: expect_commit_alive,
    Answer.OFFSETS: expect_offsets,
    Answer.NO_OFFSETS: expect_no_offsets,
    Answer.DEAD: expect_dead,
    Answer.PLAIN: expect_plain,
    Answer.FULL: expect_full,
    Answer.DELETED: expect_deleted,
    Answer.OFFSETS_DELETED: expect_offsets_deleted,
    Answer.OFFSETS_UNUSED: expect_offsets_unused,
}


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column or "missing"))
@pytest.mark.parametrize("row", Row, ids=lambda row: row.name)
def test_cell(row: Row, column: GroupState | None) -> None:
    EXPECT[ANSWERS[row][column]](Seen(row, column))


def test_every_cell_is_asked_and_every_answer_given() -> None:
    assert ASK.keys() == set(Row) == ANSWERS.keys()
    assert ARRANGE.keys() == set(COLUMNS) == {None, *GroupState} - {GroupState.DEAD}
    given = {answer for answers in ANSWERS.values() for answer in answers.values()}
    assert EXPECT.keys() == set(Answer) == given
