"""The membership by itself, for groups whose members own no partitions; and its table."""

from __future__ import annotations

import pytest

from partage.member import events, invariants, outcome
from partage.member.membership import Membership
from partage.member.reactions import OTHERWISE, REACTIONS, Reaction, Request, reaction
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import Timer
from partage.model.errors import ErrorCode
from partage.runtime.timers import TimerQueue

PROTOCOLS = (events.Protocol("election", b"me"),)


class Group:
    """One member in a group of its own kind, and all that it asked for last."""

    def __init__(self, **settings: int) -> None:
        self.member = Membership(
            MemberSettings(group_id="g", protocol_type="election", **settings)  # type: ignore[arg-type]
        )
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.actions: list[outcome.Action] = []
        self.hear(events.Start(at_ms=0))

    def hear(self, event: events.Event) -> list[outcome.Action]:
        result = self.member.handle(event)
        for key, deadline_ms in result.timers:
            self.timers.set(key, deadline_ms)
        invariants.check(self.member, self.timers.armed)
        self.actions = result.actions
        return self.actions

    @property
    def serial(self) -> int:
        """Of what was asked last."""
        return self.actions[-1].serial  # type: ignore[attr-defined, no-any-return]

    def find(self) -> None:
        self.hear(events.CoordinatorFound(at_ms=0, serial=self.serial))

    def prepare(self) -> None:
        self.hear(events.Prepared(at_ms=0, serial=self.serial, protocols=PROTOCOLS))

    def join(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.hear(
            events.JoinAnswered(
                at_ms=0,
                serial=self.serial,
                error=error,
                member_id="a",
                generation=1,
                protocol_type="election",
                protocol="election",
                leader="b",
            )
        )

    def sync(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.hear(
            events.SyncAnswered(at_ms=0, serial=self.serial, error=error, assignment=b"yours")
        )

    def adopt(self) -> None:
        self.hear(events.Adopted(at_ms=0, serial=self.serial))

    def beat(self, error: ErrorCode) -> None:
        self.hear(events.TimerFired(at_ms=3_000, key=Timer.HEARTBEAT))
        serial = self.serial
        self.hear(events.HeartbeatAnswered(at_ms=3_000, serial=serial, error=error))

    def commit(self, error: ErrorCode) -> None:
        self.hear(events.CommitAnswered(at_ms=0, generation=1, member_id="a", error=error))


def stable() -> Group:
    group = Group()
    group.find()
    group.prepare()
    group.join()
    group.sync()
    group.adopt()
    return group


def test_what_the_embedded_protocol_is_asked() -> None:
    group = Group()
    group.find()
    assert group.actions == [outcome.Prepare(serial=group.serial, generation=-1)]
    group.prepare()
    group.join()
    group.sync()
    assert group.actions == [
        outcome.Adopt(serial=group.serial, generation=1, protocol="election", assignment=b"yours")
    ]
    group.adopt()
    assert group.member.state is MemberState.STABLE
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.actions == [
        outcome.Abandon(reason="Heartbeat failed with UNKNOWN_MEMBER_ID"),
        outcome.Prepare(serial=group.serial, generation=-1),
    ]


def test_leaving() -> None:
    group = stable()
    group.hear(events.Leave(at_ms=0, reason="done"))
    assert group.actions == [outcome.Release(serial=group.serial, as_lost=False)]
    group.hear(events.Released(at_ms=0, serial=group.serial))
    (goodbye,) = group.actions
    assert isinstance(goodbye, outcome.SendLeave)
    assert (goodbye.member_id, goodbye.reason, goodbye.is_parked) == ("a", "done", False)
    group.hear(events.LeaveAnswered(at_ms=0, serial=goodbye.serial))
    assert group.actions == [outcome.Left()]
    assert group.hear(events.Leave(at_ms=0, reason="again")) == [outcome.Left()]


def test_a_join_is_waited_for_as_long_as_the_oldest_version_may_take() -> None:
    """JoinGroup v0 has no rebalance timeout, the session timeout stands for both. A member that
    gave up before left one behind each time that the next generation had to wait for.
    """
    group = Group(session_timeout_ms=60_000, rebalance_timeout_ms=3_000)
    group.find()
    group.prepare()
    assert group.timers.armed[Timer.REQUEST] == 60_000 + 5_000


def test_metadata_that_cannot_be_written_is_final() -> None:
    group = Group()
    group.find()
    group.hear(events.PrepareFailed(at_ms=0, serial=group.serial, reason="no CPUs"))
    assert group.member.state is MemberState.FAILED
    assert group.actions[-1] == outcome.Fail(error=ErrorCode.UNKNOWN_SERVER_ERROR, reason="no CPUs")


def test_what_nobody_waits_for_changes_nothing() -> None:
    group = stable()
    stale: list[events.Event] = [
        events.Prepared(at_ms=0, serial=1, protocols=PROTOCOLS),
        events.PrepareFailed(at_ms=0, serial=1, reason=""),
        events.JoinAnswered(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.SyncAnswered(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.HeartbeatAnswered(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.LeaveAnswered(at_ms=0, serial=1),
        events.Assigned(at_ms=0, serial=1, assignments={}),
        events.AssignFailed(at_ms=0, serial=1, reason=""),
        events.Adopted(at_ms=0, serial=1),
        events.Released(at_ms=0, serial=1),
        events.CoordinatorFound(at_ms=0, serial=99),
        events.CoordinatorNotFound(at_ms=0, serial=99, error=ErrorCode.INVALID_GROUP_ID),
        events.CoordinatorLost(at_ms=0, serial=99),
        events.CommitAnswered(
            at_ms=0, generation=0, member_id="a", error=ErrorCode.FENCED_INSTANCE_ID
        ),
        events.MetadataChanged(at_ms=0, reason="we do not lead"),
        events.Start(at_ms=0),
    ]
    for event in stale:
        assert group.hear(event) == [], event
        assert group.member.state is MemberState.STABLE


def test_the_session_of_a_heartbeat_begins_when_it_was_sent() -> None:
    group = stable()
    group.hear(events.TimerFired(at_ms=3_000, key=Timer.HEARTBEAT))
    group.hear(events.HeartbeatAnswered(at_ms=9_000, serial=group.serial))
    assert group.timers.armed[Timer.SESSION] == 3_000 + 45_000


CASES = [
    (request, error)
    for request in REACTIONS
    for error in [*REACTIONS[request], ErrorCode.KAFKA_STORAGE_ERROR]
    if error is not ErrorCode.NONE
]


def answered(request: Request, error: ErrorCode) -> Group:
    if request is Request.FIND:
        group = Group()
        event = events.CoordinatorNotFound(at_ms=0, serial=group.serial, error=error)
        group.hear(event)
        return group
    if request in (Request.JOIN, Request.SYNC):
        group = Group()
        group.find()
        group.prepare()
        if request is Request.SYNC:
            group.join()
            group.sync(error)
        else:
            group.join(error)
        return group
    group = stable()
    if request is Request.HEARTBEAT:
        group.beat(error)
    else:
        group.commit(error)
    return group


@pytest.mark.parametrize(("request_", "error"), CASES, ids=lambda case: getattr(case, "name", case))
def test_the_table_is_what_happens(request_: Request, error: ErrorCode) -> None:
    group = answered(request_, error)
    member = group.member
    kinds = [type(action) for action in group.actions]
    was_in_generation = request_ in (Request.SYNC, Request.HEARTBEAT, Request.COMMIT)
    match reaction(request_, error):
        case Reaction.TAKE_ID:
            assert member.member_id == "a"
            assert kinds == [outcome.Prepare]
        case Reaction.JOIN_AGAIN | Reaction.REBALANCE:
            assert kinds == [outcome.Prepare]
            assert member.is_in_generation == was_in_generation
        case Reaction.JOIN_LATER:
            assert member.state is MemberState.WAITING
            assert Timer.RETRY in group.timers.armed
            assert kinds == []
        case Reaction.FIND_AGAIN:
            assert member.link.coordinator is None
            assert Timer.RETRY in group.timers.armed
            assert kinds == ([] if request_ is Request.FIND else [outcome.Disconnect])
            assert member.is_in_generation == was_in_generation
        case Reaction.LOSE_GENERATION:
            assert kinds == [outcome.Abandon, outcome.Prepare]
            assert (member.generation, member.member_id) == (-1, "a")
        case Reaction.LOSE_MEMBERSHIP:
            assert kinds[-1] is outcome.Prepare
            assert (outcome.Abandon in kinds) == was_in_generation
            assert (member.generation, member.member_id) == (-1, "")
        case Reaction.TRY_LATER:
            assert kinds == []
            assert group.timers.armed[Timer.HEARTBEAT] == 3_000 + 100
        case Reaction.FAIL:
            assert member.state is MemberState.FAILED
            assert kinds[-1] is outcome.Fail
            assert not group.timers.armed
        case Reaction.NOTHING:
            assert kinds == []
            assert member.state is MemberState.STABLE
        case other:
            raise AssertionError(other)


def test_every_reaction_is_in_the_table() -> None:
    said = {r for row in REACTIONS.values() for r in row.values()} | set(OTHERWISE.values())
    assert said == set(Reaction)
