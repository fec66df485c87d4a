"""The checker of a member with JoinGroup: it follows the events and outcomes of the machine.

It compares each outcome with a model of what was sent and received, not with the machine's state.
"""

from __future__ import annotations

from typing import Any, Final

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.join_group.checker import Dialect, JoinRequest
from partage.proposals.join_group.member import Timer
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from partage.wire.types import Message

#: The errors that another attempt does not resolve.
_FATAL: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
#: The errors after which the coordinator accepts no commit of the generation.
_DISRUPTIVE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class JoinGroupMemberChecker:
    """Follows a member, and checks these rules:

    1. A member sends over an open connection, and one request at a time.
    2. It reads a partition only after it got its assignment, and from the offset of the response.
    3. It does not read after its session may have ended: one session timeout after it sent the last
       request that was accepted. The session of a JoinGroup response counts from the last but one
       stall check before it.
    4. It does not read when it joins, and has committed what it read in this generation, unless it
       lost the generation.
    5. It sends a Heartbeat with its member id and generation, at the latest one interval after the
       last response, and at once when it connects again within its session. Each accepted Heartbeat
       or commit extends the session. Commits and tries to connect have their intervals.
    6. When it learns of a rebalance or cannot use the response of its last join, it stops reading
       and fetches metadata before it joins. A member that is to assign for all fetches it before.
    7. Exactly errors that another attempt does not resolve are reported by their name.
    8. It does not read after a response that says that its generation or its member id is unknown.
    9. After the user has closed it, it does not join. It closes its connection at the end, or if a
       JoinGroup request waits on it.
    10. After another subscription, a change of subscribed topics, or the news of a rebalance, it
        sends no Heartbeat before it joins again.

    Args:
        settings: The settings of the member.
        dialect: The messages of its design.
        topics: The subscribed topics; None if the member subscribes by a pattern.
    """

    def __init__(
        self, settings: DesignMemberSettings, dialect: Dialect, topics: frozenset[str] | None = None
    ) -> None:
        self._settings = settings
        self._dialect = dialect
        self._is_connected = False
        self._request: Message | None = None
        self._sent_ms = 0
        self._session_end_ms, self._stall_checks_ms = 0, (0, 0)
        self._member_id = ""
        self._generation = -1
        self._offsets: dict[TopicPartition, int] = {}  # of the last OffsetFetch
        self._reading: set[TopicPartition] = set()
        self._is_lost = False  # the coordinator does not accept commits of the generation
        self._must_commit = False  # partitions were read and are not committed
        self._must_fetch = False  # metadata, before the next join
        self._has_used_metadata = False  # in the last generation
        self._must_join = False  # before the next Heartbeat
        self._subscription = topics
        self._topics: dict[str, int] = {}  # as the member knows them
        self._last_error = 0  # of the last response
        self._is_leaving = False

    def check(self, event: machine.Event, outcome: machine.MemberOutcome[Any]) -> None:
        """Check the outcome of an event.

        Raises:
            AssertionError: A rule does not hold.
        """
        request, has_closed = self._request, self._has(outcome, machine.Disconnect)
        is_over = event.at_ms >= self._session_end_ms
        match event:
            case machine.Connected():
                self._is_connected = True
            case machine.Disconnected():
                self._is_connected, self._request = False, None
            case machine.TimerFired(key=Timer.STALL):
                self._stall_checks_ms = (self._stall_checks_ms[1], event.at_ms)
            case machine.ResponseReceived() if (
                is_over and has_closed and not self._is_join(request)
            ):
                self._last_error = 0  # the session is over: the member ignores the response
            case machine.ResponseReceived(message=message):
                self._on_response(message)
                if self._is_join(request) or not is_over:
                    self._check_error(message, outcome, has_closed=has_closed)
            case machine.MetadataFetched(topics=topics):
                self._must_fetch = self._has_used_metadata = False
                self._topics = topics
            case machine.PartitionCountsChanged(topics=topics):
                before, self._topics = self._topics, topics
                self._must_fetch = self._has_used_metadata = False
                if any(topics.get(name) != before.get(name) for name in self._subscription or ()):
                    self._must_join = True
            case machine.SubscriptionChanged(topics=subscribed):
                self._subscription, self._must_join = subscribed, True
            case machine.LeaveRequested():
                self._is_leaving = True
                is_waiting = self._is_join(request)
                assert has_closed or not is_waiting, "a member that leaves waits for its join"
        for action in outcome.actions:
            self._on_action(event.at_ms, action)
        if self._reading:
            assert event.at_ms < self._session_end_ms, (
                f"the member reads, and its session ended at {self._session_end_ms}"
            )
        if isinstance(event, machine.ResponseReceived) and self._last_error in _DISRUPTIVE:
            assert not self._reading, f"the member reads after the error {self._last_error}"
        if self._reading and isinstance(event, machine.Connected):
            is_sent = self._has(outcome, machine.Send) or self._has(outcome, machine.FetchMetadata)
            assert is_sent, "a member that connects again says nothing"
        self._check_timers(event, outcome)

    @staticmethod
    def _has(outcome: machine.MemberOutcome[Any], kind: type[machine.Action]) -> bool:
        return any(isinstance(action, kind) for action in outcome.actions)

    @staticmethod
    def _is_join(request: Message | None) -> bool:
        known = HeartbeatRequest | LeaveGroupRequest | OffsetCommitRequest | OffsetFetchRequest
        return request is not None and not isinstance(request, known)

    def _check_timers(self, event: machine.Event, outcome: machine.MemberOutcome[Any]) -> None:
        settings, armed = self._settings, dict(outcome.timers)
        for key, wait_ms in (
            (Timer.HEARTBEAT, settings.heartbeat_interval_ms),
            (Timer.COMMIT, settings.commit_interval_ms),
            (Timer.RETRY, settings.retry_backoff_ms),
        ):
            deadline_ms = armed.get(key)
            is_right = deadline_ms is None or deadline_ms == event.at_ms + wait_ms
            assert is_right, f"the {key} timer ends at {deadline_ms}"
        match event:
            case machine.ResponseReceived(message=HeartbeatResponse() | OffsetCommitResponse()):
                if self._reading and not self._last_error:
                    end_ms = armed.get(Timer.SESSION)
                    expected_ms = max(event.at_ms, self._session_end_ms)
                    assert end_ms == expected_ms, f"the session ends at {end_ms}: {expected_ms}"

    def _check_error(
        self, message: Message, outcome: machine.MemberOutcome[Any], *, has_closed: bool
    ) -> None:
        reasons = [each.reason for each in outcome.actions if isinstance(each, machine.ReportError)]
        error = self._last_error
        if error in _FATAL and not isinstance(message, OffsetCommitResponse):
            names = [each.partition(":")[0] for each in reasons]
            assert names == [ErrorCode(error).name], f"error {error} is reported as {reasons}"
        elif error:
            assert not reasons, f"error {error} is reported as {reasons}"
        if reasons or isinstance(message, LeaveGroupResponse):
            assert has_closed, "a member that has stopped keeps its connection"
        if isinstance(message, HeartbeatResponse) and error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_fetch = self._must_join = True

    def _on_response(self, message: Message) -> None:
        request, self._request = self._request, None
        timeout_ms, error = self._settings.session_timeout_ms, 0
        match message:
            case HeartbeatResponse(error_code=error):
                if not error:
                    self._session_end_ms = self._sent_ms + timeout_ms
            case OffsetCommitResponse(topics=topics):
                errors = [each.error_code for topic in topics for each in topic.partitions]
                error = next(filter(None, errors), 0)
                if not error:
                    self._session_end_ms = self._sent_ms + timeout_ms
            case OffsetFetchResponse(topics=topics):
                self._offsets = {
                    TopicPartition(topic.name, each.partition_index): each.committed_offset
                    for topic in topics
                    for each in topic.partitions
                }
            case LeaveGroupResponse():
                pass
            case _ if request is not None:
                response = self._dialect.response(message)
                error = response.error
                if error == ErrorCode.REQUEST_TIMED_OUT:
                    self._member_id = response.member_id
                if not error:
                    self._session_end_ms = self._stall_checks_ms[0] + timeout_ms
                    self._member_id = response.member_id
                    self._generation = response.generation
                    self._is_lost = False
                    self._has_used_metadata = True
        self._last_error = error
        if error in _DISRUPTIVE:
            self._is_lost, self._has_used_metadata = True, False
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _on_action(self, at_ms: int, action: machine.Action) -> None:
        match action:
            case machine.Connect() | machine.Disconnect():
                self._is_connected, self._request = False, None
                self._has_used_metadata = False  # it joins again to get its partitions back
                if at_ms >= self._session_end_ms:
                    self._must_commit = False
            case machine.Send(message=message):
                assert self._is_connected, f"{message} is sent without a connection"
                assert self._request is None, f"{message} is sent while {self._request} waits"
                self._request, self._sent_ms = message, at_ms
                self._check_request(at_ms, message)
            case machine.FetchMetadata():
                assert not self._reading, "the member reads while it fetches metadata"
            case machine.StartReading(offsets=offsets):
                assert offsets == self._offsets, f"reads from {offsets}, not {self._offsets}"
                self._reading = set(offsets)
            case machine.StopReading():
                assert self._reading, "the member stops without reading"
                self._must_commit = not self._is_lost
                self._reading.clear()
            case machine.CommitDue():
                self._must_commit = False

    def _check_request(self, at_ms: int, message: Message) -> None:
        match message:
            case HeartbeatRequest(generation_id=generation, member_id=member_id):
                self._check_identity(generation, member_id)
                assert not self._must_join, "a Heartbeat is sent before the member joins again"
            case OffsetCommitRequest(generation_id_or_member_epoch=generation, member_id=member_id):
                self._check_identity(generation, member_id)
            case OffsetFetchRequest():
                pass
            case LeaveGroupRequest(member_id=member_id):
                assert not self._reading, "the member reads when it leaves"
                assert not self._must_commit, "the member leaves before it commits"
                assert member_id == self._member_id, f"leaves as {member_id!r}"
            case _:
                assert not self._reading, f"the member reads when it sends {message}"
                assert not self._must_commit, f"{message} is sent before the positions"
                assert not self._is_leaving, f"a member that leaves sends {message}"
                is_old = self._must_fetch or self._has_used_metadata
                assert not is_old, f"{message} is sent with old metadata"
                read = self._dialect.request(message)
                if isinstance(read, JoinRequest):
                    self._must_join = False
                    self._stall_checks_ms = at_ms, at_ms
                    assert read.member_id == self._member_id, f"joins as {read.member_id!r}"

    def _check_identity(self, generation: int, member_id: str) -> None:
        sent, known = (member_id, generation), (self._member_id, self._generation)
        assert sent == known, f"a request of {sent}, the member is {known}"
