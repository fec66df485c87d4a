"""The checker of a coordinator with JoinGroup: it follows the events and outcomes of the machine.

It compares each outcome with a model of what was sent and received, not with the machine's state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.join_group.group import (
    ExpirationTimer,
    JoinPhaseTimer,
    MemberSessionTimer,
    SynchronizeTimer,
)
from partage.proposals.join_group.records import (
    CommittedOffsetRecord,
    GenerationRecord,
    GroupRemovedRecord,
)
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from partage.wire.types import Message

_ANSWERED_AT_ONCE = (
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a JoinGroup request that all designs have.

    ``member_id`` is empty for a new member, and ``synchronize_timeout_ms`` is 0 if the request has
    none. ``metadata`` has the metadata for each protocol, in the member's order of preference.
    ``metadata_version`` is 0 in a design without versions.
    """

    group_id: str
    member_id: str
    session_timeout_ms: int
    synchronize_timeout_ms: int = 0
    protocol_type: str = ""
    metadata: dict[str, bytes] = {}
    metadata_version: int = 0


class JoinResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a JoinGroup response that all designs have.

    ``members`` has the metadata of each member if the response tells it, else None. ``state`` is
    the member's assignment, and ``ids`` are the members beside it, in a design that sends these.
    """

    error: int
    generation: int
    member_id: str
    protocol: str = ""
    members: dict[str, bytes] | None = None
    state: bytes | None = None
    ids: tuple[str, ...] | None = None


class Assignments(msgspec.Struct, frozen=True, kw_only=True):
    """The request in which the synchronizer sends the states of all members, or an error."""

    group_id: str
    member_id: str
    generation: int
    error: int
    states: dict[str, bytes]


class Dialect(ABC):
    """Reads the JoinGroup messages of one design."""

    @abstractmethod
    def request(self, message: Message) -> JoinRequest | Assignments | None:
        """Return the content of a JoinGroup request; None if it is invalid."""

    @abstractmethod
    def join_error(self, join: JoinRequest, others: list[JoinRequest]) -> ErrorCode:
        """Return the error of a request that is valid in the fields of all designs.

        Args:
            join: The request.
            others: The last requests of the other members.
        """

    @abstractmethod
    def response(self, message: Message) -> JoinResponse:
        """Return the content of a JoinGroup response."""


class KnownMember(msgspec.Struct, kw_only=True):
    """A member as the checker knows it.

    Attributes:
        join: Its last JoinGroup request.
        connection: Where that request came from while it has no response.
        session_end_ms: The end of its session, without the time in which a request is parked.
        number: Its position among all members that have joined the coordinator's groups.
        join_number: The position of its last JoinGroup request among all requests.
    """

    join: JoinRequest
    number: int
    join_number: int
    connection: ConnectionId | None = None
    session_end_ms: int | None = None


class KnownGroup(msgspec.Struct, kw_only=True):
    """A group as the checker knows it.

    ``is_settled`` is True from the last response of a generation until the next rebalance.
    """

    generation: int = 0
    members: dict[str, KnownMember] = {}
    is_settled: bool = False
    synchronizer: str | None = None
    offsets: dict[TopicPartition, int] = {}


class JoinGroupCoordinatorChecker:
    """Follows a coordinator, and checks these rules:

    1. Each request gets one response, of its kind, on its connection. A later JoinGroup of the same
       member replaces a parked one, which gets no response.
    2. A generation is one higher than the last, and starts only when every member has joined or the
       time of the join phase is over.
    3. A response has the current generation, and the metadata of exactly the members of it, as they
       sent it.
    4. A Heartbeat or OffsetCommit is accepted exactly from a member of the current generation. The
       response to a Heartbeat tells of a rebalance exactly while there is one.
    5. Offsets are stored exactly as accepted commits have them, and fetched as stored.
    6. A session ends exactly one session timeout after the last request or response.
    7. The states that the synchronizer sent reach their members. No other member assigns.
    8. The synchronizer is the member that the coordinator's choice names.

    Args:
        settings: The settings of the coordinator.
        dialect: The messages of its design.
        is_synchronized: True if one member assigns for all.
        removes_late_synchronizer: True if another member is asked after a late one.
        synchronizer_rank: Returns the rank of a member: one with the highest rank is asked to
            assign. None if any member may be asked.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        dialect: Dialect,
        *,
        is_synchronized: bool = False,
        removes_late_synchronizer: bool = False,
        synchronizer_rank: Callable[[KnownMember], int] | None = None,
    ) -> None:
        self._settings = settings
        self._dialect = dialect
        self._is_synchronized = is_synchronized
        self._removes_late_synchronizer = removes_late_synchronizer
        self._synchronizer_rank = synchronizer_rank
        self._join_count = 0
        self._groups: dict[str, KnownGroup] = {}
        self._owed: dict[ConnectionId, Message] = {}
        self._states: dict[str, bytes] = {}  # of the assignment that is being answered
        self._has_left = False  # the current event is the LeaveGroup of a member
        self._served: set[Hashable] = set()  # sessions that the current event starts again

    def load(self, record: Any) -> None:
        """Note a record that the coordinator has loaded."""
        self._on_record(record, is_loaded=True)

    def _group(self, group_id: str) -> KnownGroup:
        return self._groups.setdefault(group_id, KnownGroup())

    def check(self, event: machine.Event, outcome: machine.CoordinatorOutcome[Any, Any]) -> None:
        """Check the outcome of an event.

        Raises:
            AssertionError: A rule does not hold.
        """
        match event:
            case machine.MessageReceived(connection=connection, message=request):
                assert connection not in self._owed, "two requests of a connection at a time"
                self._owed[connection] = request
                self._on_request(event, outcome)
            case machine.ConnectionLost(connection=connection):
                self._owed.pop(connection, None)
                for group in self._groups.values():
                    for member in group.members.values():
                        if member.connection == connection:
                            member.connection = None
            case machine.TimerFired(key=key):
                self._on_timer(event.at_ms, key)
        self._check_records(event, outcome)
        for connection, message in outcome.sends:
            self._on_send(event, connection, message)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is not None:
                self._check_deadline(event.at_ms, key, deadline_ms)
        armed = {key for key, deadline_ms in outcome.timers if deadline_ms is not None}
        assert self._served <= armed, f"the sessions of {self._served - armed} do not start again"
        self._served.clear()
        self._states = {}

    # Requests

    def _on_request(
        self, event: machine.MessageReceived, outcome: machine.CoordinatorOutcome[Any, Any]
    ) -> None:
        answers = [message for to, message in outcome.sends if to == event.connection]
        request = event.message
        if isinstance(request, _ANSWERED_AT_ONCE):
            assert len(answers) == 1, f"{len(answers)} responses to {request}"
            if isinstance(request, LeaveGroupRequest):
                self._on_leave(request)
            return
        assert len(answers) <= 1, f"{len(answers)} responses to {request}"
        read = self._dialect.request(request)
        match read:
            case JoinRequest():
                self._on_join(event, read, answers)
            case Assignments():
                self._on_assignments(event.connection, read, answers, outcome)
            case None:
                assert answers, "an invalid request gets no response"

    def _on_join(
        self, event: machine.MessageReceived, join: JoinRequest, answers: list[Message]
    ) -> None:
        group = self._group(join.group_id)
        expected = self._join_error(group, join)
        refusals = [self._dialect.response(each) for each in answers]
        refusals = [each for each in refusals if each.error]
        errors = [each.error for each in refusals]
        if ErrorCode.GROUP_MAX_SIZE_REACHED not in errors:  # the size of all metadata
            assert errors == [expected] * bool(expected), f"{join} gets {errors}, not {expected}"
        if refusals:
            assert refusals[0].member_id == join.member_id, f"{refusals[0]} answers {join}"
            return
        group.is_settled = False
        group.synchronizer = None
        name = join.member_id or f"member-{event.draw:016x}"
        before = group.members.get(name)
        if before is not None and before.connection not in (None, event.connection):
            self._owed.pop(before.connection, None)  # replaced
        self._join_count += 1
        group.members[name] = KnownMember(
            join=join,
            number=self._join_count if before is None else before.number,
            join_number=self._join_count,
            connection=event.connection,
        )

    def _join_error(self, group: KnownGroup, join: JoinRequest) -> ErrorCode:
        settings = self._settings
        if not join.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if join.session_timeout_ms < settings.session_timeout_min_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if join.session_timeout_ms > settings.session_timeout_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if join.member_id and join.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        others = [each.join for name, each in group.members.items() if name != join.member_id]
        return self._dialect.join_error(join, others)

    def _on_leave(self, request: LeaveGroupRequest) -> None:
        group = self._group(request.group_id)
        left = group.members.pop(request.member_id, None)
        self._has_left = left is not None
        if left is not None:
            if left.connection is not None:
                self._owed.pop(left.connection, None)
            self._disturb(group)

    def _on_assignments(
        self,
        connection: ConnectionId,
        read: Assignments,
        answers: list[Message],
        outcome: machine.CoordinatorOutcome[Any, Any],
    ) -> None:
        assert answers, "an assignment gets no response"
        response = self._dialect.response(answers[0])
        group = self._group(read.group_id)
        if group.synchronizer != read.member_id or read.generation != group.generation:
            assert response.error, f"{read.member_id} assigns without being asked"
            return
        assert response.error == read.error, f"error {response.error} for {read.error}"
        member = group.members[read.member_id]
        member.connection, member.session_end_ms = connection, None
        group.synchronizer = None
        self._states = read.states
        if read.error:
            waiting = {each.connection for each in group.members.values()} - {None}
            sent = {to: self._dialect.response(message).error for to, message in outcome.sends}
            assert sent == dict.fromkeys(waiting, read.error), f"{waiting} get {sent}"
            group.members.clear()

    # Timers

    def _on_timer(self, at_ms: int, key: Hashable) -> None:
        match key:
            case MemberSessionTimer(group_id=group_id, member_id=member_id):
                group = self._group(group_id)
                member = group.members.pop(member_id, None)
                if member is not None:
                    end_ms = member.session_end_ms if member.connection is None else None
                    assert end_ms is not None, f"the session of {member_id} ends while it is parked"
                    assert at_ms >= end_ms, f"the session of {member_id} ends before {end_ms}"
                    self._disturb(group)
            case JoinPhaseTimer(group_id=group_id):
                members = self._group(group_id).members
                if all(each.connection is None for each in members.values()):
                    members.clear()  # no generation follows
            case SynchronizeTimer(group_id=group_id):
                group = self._group(group_id)
                assert group.synchronizer is not None, "no member was to assign"
                if self._removes_late_synchronizer:
                    del group.members[group.synchronizer]
                group.synchronizer = None

    def _disturb(self, group: KnownGroup) -> None:
        """A member was lost: the generation is over."""
        group.is_settled = False
        group.synchronizer = None

    def _check_deadline(self, at_ms: int, key: Hashable, deadline_ms: int) -> None:
        match key:
            case MemberSessionTimer(group_id=group_id, member_id=member_id):
                member = self._group(group_id).members.get(member_id)
                if member is not None:
                    expected_ms = {at_ms + (timeout_ms := member.join.session_timeout_ms)}
                    if member_id == self._group(group_id).synchronizer:
                        expected_ms.add(at_ms + timeout_ms + self._synchronize_ms(member))
                    assert deadline_ms in expected_ms, f"{member_id} expires at {deadline_ms}"
                    member.session_end_ms = deadline_ms
            case JoinPhaseTimer(group_id=group_id):
                members = self._group(group_id).members.values()
                longest_ms = max((m.join.session_timeout_ms for m in members), default=0)
                allowed = (longest_ms, self._settings.initial_rebalance_delay_ms)
                assert deadline_ms - at_ms in allowed, f"a join phase ends at {deadline_ms}"
            case SynchronizeTimer(group_id=group_id):
                group = self._group(group_id)
                timeout_ms = self._synchronize_ms(group.members[group.synchronizer or ""])
                assert deadline_ms == at_ms + timeout_ms, f"synchronization ends at {deadline_ms}"

    def _synchronize_ms(self, member: KnownMember) -> int:
        return member.join.synchronize_timeout_ms or self._settings.synchronize_timeout_ms

    # Records

    def _check_records(
        self, event: machine.Event, outcome: machine.CoordinatorOutcome[Any, Any]
    ) -> None:
        accepted: dict[TopicPartition, int] = {}
        commit = getattr(event, "message", None)
        if isinstance(commit, OffsetCommitRequest):
            group = self._group(commit.group_id)
            is_member = commit.member_id in group.members
            generation = commit.generation_id_or_member_epoch
            if is_member and generation == group.generation:
                accepted = {
                    TopicPartition(topic.name, each.partition_index): each.committed_offset
                    for topic in commit.topics
                    for each in topic.partitions
                }
        written = {
            TopicPartition(each.topic, each.partition): each.offset
            for each in outcome.records
            if isinstance(each, CommittedOffsetRecord)
        }
        assert written == accepted, f"{written} are stored, {accepted} were committed"
        for record in outcome.records:
            self._on_record(record, is_loaded=False, event=event)

    def _on_record(
        self, record: Any, *, is_loaded: bool, event: machine.Event | None = None
    ) -> None:
        match record:
            case GenerationRecord(group_id=group_id, generation=generation):
                group = self._group(group_id)
                if not is_loaded:
                    self._begin_generation(group, group_id, generation, event)
                group.generation = generation
            case CommittedOffsetRecord():
                partition = TopicPartition(record.topic, record.partition)
                self._group(record.group_id).offsets[partition] = record.offset
            case GroupRemovedRecord(group_id=group_id):
                assert not self._group(group_id).members, f"{group_id} is removed with members"
                is_over = getattr(event, "key", None) == ExpirationTimer(group_id)
                assert is_loaded or is_over, f"{group_id} is removed before its time"
                del self._groups[group_id]

    def _begin_generation(
        self, group: KnownGroup, group_id: str, generation: int, event: machine.Event | None
    ) -> None:
        assert generation == group.generation + 1, f"{generation} follows {group.generation}"
        is_over = isinstance(event, machine.TimerFired) and event.key == JoinPhaseTimer(group_id)
        absent = [each for each, member in group.members.items() if member.connection is None]
        assert is_over or not absent, f"a generation begins without {absent}"
        for each in absent:
            del group.members[each]
        group.is_settled = False

    # Responses

    def _on_send(self, event: machine.Event, connection: ConnectionId, message: Message) -> None:
        request = self._owed.pop(connection, None)
        assert request is not None, f"{message} answers no request"
        match request, message:
            case HeartbeatRequest(), HeartbeatResponse(error_code=error):
                self._check_heartbeat(request, error)
            case LeaveGroupRequest(), LeaveGroupResponse(error_code=error):
                assert bool(error) is not self._has_left, f"LeaveGroup gets {error}"
            case OffsetCommitRequest(), OffsetCommitResponse(topics=topics):
                expected = self._member_error(
                    request.group_id, request.member_id, request.generation_id_or_member_epoch
                )
                errors = {each.error_code for topic in topics for each in topic.partitions}
                assert errors <= {expected}, f"OffsetCommit gets {errors}, not {expected}"
                if not expected:
                    self._serve(request.group_id, request.member_id)
                sent = [len(topic.partitions) for topic in request.topics]
                assert [len(topic.partitions) for topic in topics] == sent, "partitions are missing"
            case OffsetFetchRequest(), OffsetFetchResponse(topics=topics):
                offsets = self._group(request.group_id).offsets
                asked = [
                    TopicPartition(topic.name, index)
                    for topic in request.topics or ()
                    for index in topic.partition_indexes
                ]
                given = [
                    (t.name, p.partition_index, p.committed_offset)
                    for t in topics
                    for p in t.partitions
                ]
                assert given == [(*each, offsets.get(each, -1)) for each in asked], given
            case (HeartbeatRequest() | LeaveGroupRequest() | OffsetCommitRequest(), _):
                raise AssertionError(f"{message} answers {request}")
            case _:
                self._check_join_response(event, connection, request, message)

    def _member_error(self, group_id: str, member_id: str, generation: int) -> ErrorCode:
        group = self._group(group_id)
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _serve(self, group_id: str, member_id: str) -> None:
        member = self._group(group_id).members.get(member_id)
        if member is not None and member.connection is None:  # a parked request has no session
            self._served.add(MemberSessionTimer(group_id, member_id))

    def _check_heartbeat(self, request: HeartbeatRequest, error: int) -> None:
        expected = self._member_error(request.group_id, request.member_id, request.generation_id)
        if not expected:
            self._serve(request.group_id, request.member_id)
            if not self._group(request.group_id).is_settled:
                expected = ErrorCode.REBALANCE_IN_PROGRESS
        assert error == expected, f"a Heartbeat of {request.member_id} gets {error}: {expected}"

    def _check_join_response(
        self, event: machine.Event, connection: ConnectionId, request: Message, message: Message
    ) -> None:
        read = self._dialect.request(request)
        if read is None:
            return
        response = self._dialect.response(message)
        group = self._group(read.group_id)
        member = group.members.get(response.member_id)
        if response.error:
            assert response.generation == -1, f"{response} has an error and a generation"
            waiting = [name for name, m in group.members.items() if m.connection == connection]
            ids = {response.member_id, *waiting}
            assert len(ids) == 1, f"the response of {waiting} is for {response.member_id!r}"
            if member is not None and member.connection == connection:
                member.connection = None
                self._serve(read.group_id, response.member_id)
            return
        assert response.generation == group.generation, (
            f"{response.member_id} joins {response.generation}, not {group.generation}"
        )
        assert member is not None, f"{response.member_id} is no member"
        assert member.connection == connection, f"{response.member_id} sent no request here"
        member.connection = None
        self._serve(read.group_id, response.member_id)
        is_question = self._is_synchronized and response.members is not None
        if is_question:
            if isinstance(event, machine.TimerFired):  # members without a request are removed
                for name, each in list(group.members.items()):
                    if each is not member and each.connection is None:
                        del group.members[name]
            rank = self._synchronizer_rank
            if rank is not None:
                highest = max(map(rank, group.members.values()))
                assert rank(member) == highest, f"{response.member_id} is asked to assign"
            group.synchronizer = response.member_id
        if response.protocol:
            self._check_protocol(group, response.protocol)
        if response.members is not None:
            sent = {
                name: each.join.metadata[response.protocol] for name, each in group.members.items()
            }
            assert response.members == sent, "the response has other metadata than was sent"
        if response.state is not None:
            expected = self._states.get(response.member_id, b"")
            assert response.state == expected, f"{response.member_id} gets another state"
        if response.ids is not None:
            assert set(response.ids) == set(group.members), f"{response.ids} are not all members"
        group.is_settled = not is_question and all(
            each.connection is None for each in group.members.values()
        )

    @staticmethod
    def _check_protocol(group: KnownGroup, protocol: str) -> None:
        """Check that most members prefer the protocol among those that all support."""
        offers = [list(each.join.metadata) for each in group.members.values()]
        common = set(offers[0]).intersection(*offers)
        votes = Counter(next(name for name in offer if name in common) for offer in offers)
        assert votes[protocol] == max(votes.values()), f"{protocol} was chosen: {votes}"
