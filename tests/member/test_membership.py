"""The membership state machine alone, for groups without partitions, and its table."""

from __future__ import annotations

import pytest

from partage.member import events, invariants, outcome
from partage.member.reactions import (
    DEFAULT_REACTIONS,
    REACTIONS,
    CoordinatorRequest,
    Reaction,
    reaction_to,
)
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.runtime.timers import TimerQueue

ILLEGAL = ErrorCode.ILLEGAL_GENERATION
PROTOCOLS = (events.SupportedProtocol("election", b"me"),)


class Group:
    """A member of a group of another protocol type, and its last actions."""

    def __init__(self, **settings: object) -> None:
        self.member = MembershipStateMachine(
            # Settings have several types, which **settings cannot express.
            MemberSettings(group_id="g", protocol_type="election", **settings)  # type: ignore[arg-type]
        )
        self.timers: TimerQueue[MemberTimer] = TimerQueue()
        self.actions: list[outcome.Action] = []
        self.handle(events.StartRequested(at_ms=0))

    def handle(self, event: events.Event) -> list[outcome.Action]:
        result = self.member.handle(event)
        for key, deadline_ms in result.timers:
            self.timers.set(key, deadline_ms)
        invariants.check_member(self.member, self.timers.armed)
        self.actions = result.actions
        return self.actions

    @property
    def serial(self) -> int:
        """Serial of the last request."""
        # Only actions that are requests have a serial; tests read it after such an action.
        return self.actions[-1].serial  # type: ignore[attr-defined, no-any-return]

    def find(self) -> None:
        self.handle(events.CoordinatorFound(at_ms=0, serial=self.serial))

    def prepare(self) -> None:
        self.handle(events.JoinPrepared(at_ms=0, serial=self.serial, protocols=PROTOCOLS))

    def join(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.handle(
            events.JoinResponseReceived(
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
        self.handle(
            events.SyncResponseReceived(
                at_ms=0, serial=self.serial, error=error, assignment=b"yours"
            )
        )

    def adopt(self) -> None:
        self.handle(events.AssignmentApplied(at_ms=0, serial=self.serial))

    def beat(self, error: ErrorCode) -> None:
        self.handle(events.TimerFired(at_ms=3_000, key=MemberTimer.HEARTBEAT))
        serial = self.serial
        self.handle(events.HeartbeatResponseReceived(at_ms=3_000, serial=serial, error=error))

    def commit(self, error: ErrorCode) -> None:
        self.handle(events.CommitRejected(at_ms=0, generation=1, member_id="a", error=error))


def stable(**settings: object) -> Group:
    group = Group(**settings)
    group.find()
    group.prepare()
    group.join()
    group.sync()
    group.adopt()
    return group


def test_embedded_protocol_requests_in_order() -> None:
    group = Group()
    group.find()
    assert group.actions == [outcome.PrepareJoin(serial=group.serial, generation=-1)]
    group.prepare()
    group.join()
    group.sync()
    assert group.actions == [
        outcome.ApplyAssignment(
            serial=group.serial, generation=1, protocol="election", assignment=b"yours"
        )
    ]
    group.adopt()
    assert group.member.state is MemberState.STABLE
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.actions == [
        outcome.DiscardAssignment(reason="Heartbeat failed with UNKNOWN_MEMBER_ID"),
        outcome.PrepareJoin(serial=group.serial, generation=-1),
    ]


def test_leave_releases_before_leave_group() -> None:
    group = stable()
    group.handle(events.LeaveRequested(at_ms=0, reason="done"))
    assert group.actions == [outcome.ReleaseAssignment(serial=group.serial, is_lost=False)]
    group.handle(events.AssignmentReleased(at_ms=0, serial=group.serial))
    (goodbye,) = group.actions
    assert isinstance(goodbye, outcome.SendLeave)
    assert (goodbye.member_id, goodbye.reason, goodbye.is_parked) == ("a", "done", False)
    group.handle(events.LeaveResponseReceived(at_ms=0, serial=goodbye.serial))
    assert group.actions == [outcome.LeftGroup()]
    assert group.handle(events.LeaveRequested(at_ms=0, reason="again")) == [outcome.LeftGroup()]


def test_join_timeout_covers_session_timeout_of_v0() -> None:
    """JoinGroup v0 has no rebalance timeout; the session timeout is used for both.

    A member that gave up earlier would leave a stale member behind each time, and the next
    generation would have to wait for it.
    """
    group = Group(session_timeout_ms=60_000, rebalance_timeout_ms=3_000)
    group.find()
    group.prepare()
    assert group.timers.armed[MemberTimer.REQUEST] == 60_000 + 5_000


def test_join_prepare_failed_is_fatal() -> None:
    group = Group()
    group.find()
    group.handle(events.JoinPrepareFailed(at_ms=0, serial=group.serial, reason="no CPUs"))
    assert group.member.state is MemberState.FATAL
    assert group.actions[-1] == outcome.ReportFatalError(
        error=ErrorCode.UNKNOWN_SERVER_ERROR, reason="no CPUs"
    )


def test_outdated_events_are_ignored() -> None:
    group = stable()
    stale: list[events.Event] = [
        events.JoinPrepared(at_ms=0, serial=1, protocols=PROTOCOLS),
        events.JoinPrepareFailed(at_ms=0, serial=1, reason=""),
        events.JoinResponseReceived(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.SyncResponseReceived(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.HeartbeatResponseReceived(at_ms=0, serial=1, error=ErrorCode.FENCED_INSTANCE_ID),
        events.LeaveResponseReceived(at_ms=0, serial=1),
        events.AssignmentComputed(at_ms=0, serial=1, assignments={}),
        events.AssignorFailed(at_ms=0, serial=1, reason=""),
        events.AssignmentApplied(at_ms=0, serial=1),
        events.AssignmentReleased(at_ms=0, serial=1),
        events.CoordinatorFound(at_ms=0, serial=99),
        events.CoordinatorNotFound(at_ms=0, serial=99, error=ErrorCode.INVALID_GROUP_ID),
        events.CoordinatorLost(at_ms=0, serial=99),
        events.CommitRejected(
            at_ms=0, generation=0, member_id="a", error=ErrorCode.FENCED_INSTANCE_ID
        ),
        events.MetadataChanged(at_ms=0, reason="we do not lead"),
        events.StartRequested(at_ms=0),
    ]
    for event in stale:
        assert group.handle(event) == [], event
        assert group.member.state is MemberState.STABLE


def test_session_starts_when_heartbeat_was_sent() -> None:
    group = stable()
    group.handle(events.TimerFired(at_ms=3_000, key=MemberTimer.HEARTBEAT))
    group.handle(events.HeartbeatResponseReceived(at_ms=9_000, serial=group.serial))
    assert group.timers.armed[MemberTimer.SESSION] == 3_000 + 45_000


def joining(**settings: object) -> Group:
    """A member of generation 1 that waits for the response to its next JoinGroup."""
    group = stable(**settings)
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    group.prepare()
    assert group.member.state is MemberState.JOINING
    return group


def test_commit_that_the_next_generation_overtook_loses_nothing() -> None:
    """The response to the JoinGroup, which has started that generation, is still on its way."""
    group = joining()
    join = group.serial
    group.commit(ILLEGAL)
    assert (group.actions, group.member.state) == ([], MemberState.JOINING)
    assert group.timers.armed[MemberTimer.REQUEST] == 30_000, "its response is due"
    group.handle(events.CommitRejected(at_ms=9_000, generation=1, member_id="a", error=ILLEGAL))
    assert group.timers.armed[MemberTimer.REQUEST] == 30_000, "more commits do not delay it"
    group.handle(
        events.JoinResponseReceived(
            at_ms=0,
            serial=join,
            member_id="a",
            generation=2,
            protocol_type="election",
            protocol="election",
            leader="b",
        )
    )
    assert [type(action) for action in group.actions] == [outcome.SendSync]


@pytest.mark.parametrize(
    ("error", "instance_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, None), (ErrorCode.ILLEGAL_GENERATION, "one")],
)
def test_commit_during_a_join_may_show_that_the_group_went_on(
    error: ErrorCode, instance_id: str | None
) -> None:
    """A static member keeps its place, although it has missed a join phase."""
    group = joining(instance_id=instance_id)
    group.commit(error)
    assert outcome.DiscardAssignment in [type(action) for action in group.actions]


def test_commit_during_a_second_join_may_show_that_the_first_one_was_answered() -> None:
    """The member has missed the assignment of that generation."""
    group = joining()
    group.handle(events.CoordinatorLost(at_ms=0, serial=group.member.link.coordinator_serial))
    group.timers.set(MemberTimer.RETRY, None)  # it fires
    group.handle(events.TimerFired(at_ms=5_000, key=MemberTimer.RETRY))
    group.find()
    group.prepare()
    assert group.member.state is MemberState.JOINING
    group.commit(ILLEGAL)
    assert outcome.DiscardAssignment in [type(action) for action in group.actions]


CASES = [
    (request, error)
    for request in REACTIONS
    for error in [*REACTIONS[request], ErrorCode.KAFKA_STORAGE_ERROR]
    if error is not ErrorCode.NONE
]


def answered(request: CoordinatorRequest, error: ErrorCode) -> Group:
    if request is CoordinatorRequest.FIND:
        group = Group()
        event = events.CoordinatorNotFound(at_ms=0, serial=group.serial, error=error)
        group.handle(event)
        return group
    if request in (CoordinatorRequest.JOIN, CoordinatorRequest.SYNC):
        group = Group()
        group.find()
        group.prepare()
        if request is CoordinatorRequest.SYNC:
            group.join()
            group.sync(error)
        else:
            group.join(error)
        return group
    group = stable()
    if request is CoordinatorRequest.HEARTBEAT:
        group.beat(error)
    else:
        group.commit(error)
    return group


@pytest.mark.parametrize(("request_", "error"), CASES, ids=lambda case: getattr(case, "name", case))
def test_reactions_match_table(request_: CoordinatorRequest, error: ErrorCode) -> None:
    group = answered(request_, error)
    member = group.member
    kinds = [type(action) for action in group.actions]
    was_in_generation = request_ in (
        CoordinatorRequest.SYNC,
        CoordinatorRequest.HEARTBEAT,
        CoordinatorRequest.COMMIT,
    )
    match reaction_to(request_, error):
        case Reaction.REJOIN_WITH_ID:
            assert member.member_id == "a"
            assert kinds == [outcome.PrepareJoin]
        case Reaction.REJOIN | Reaction.REBALANCE:
            assert kinds == [outcome.PrepareJoin]
            assert member.is_in_generation == was_in_generation
        case Reaction.REJOIN_AFTER_BACKOFF:
            assert member.state is MemberState.UNJOINED
            assert MemberTimer.RETRY in group.timers.armed
            assert kinds == []
        case Reaction.FIND_COORDINATOR:
            assert member.link.coordinator_serial is None
            assert MemberTimer.RETRY in group.timers.armed
            assert kinds == ([] if request_ is CoordinatorRequest.FIND else [outcome.Disconnect])
            assert member.is_in_generation == was_in_generation
        case Reaction.LOSE_GENERATION:
            assert kinds == [outcome.DiscardAssignment, outcome.PrepareJoin]
            assert (member.generation, member.member_id) == (-1, "a")
        case Reaction.LOSE_MEMBERSHIP:
            assert kinds[-1] is outcome.PrepareJoin
            assert (outcome.DiscardAssignment in kinds) == was_in_generation
            assert (member.generation, member.member_id) == (-1, "")
        case Reaction.RETRY_AFTER_BACKOFF:
            assert kinds == []
            assert group.timers.armed[MemberTimer.HEARTBEAT] == 3_000 + 100
        case Reaction.FAIL:
            assert member.state is MemberState.FATAL
            assert kinds[-1] is outcome.ReportFatalError
            assert not group.timers.armed
        case Reaction.IGNORE:
            assert kinds == []
            assert member.state is MemberState.STABLE
        case other:
            raise AssertionError(other)


def test_table_uses_every_reaction() -> None:
    said = {r for row in REACTIONS.values() for r in row.values()} | set(DEFAULT_REACTIONS.values())
    assert said == set(Reaction)
