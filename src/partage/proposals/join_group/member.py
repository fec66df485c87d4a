"""The member of the designs with JoinGroup, except for what it does with the response.

A member reads partitions between a join and the next rebalance. Before it joins again, it stops
reading and commits its positions, so the next owners continue from there.

At most one request is in flight, and each has a timeout: the machine of the coordinator may be lost
without a trace.

A response to JoinGroup does not say when it was sent. A process that was stopped may handle it long
after the coordinator has ended the session. So the member counts its session from a time at which
it certainly had not received the response yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from partage.bridge.member_requests import to_error_code
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.proposals.machine import (
    CommitDue,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Event,
    FetchMetadata,
    LeaveRequested,
    MemberOutcome,
    MetadataFetched,
    PartitionCountsChanged,
    PositionsTaken,
    ReportError,
    ResponseReceived,
    Started,
    StartReading,
    StopReading,
    SubscriptionChanged,
    TimerFired,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from partage.wire.types import Message


class DesignMemberState(StrEnum):
    """The states of a member."""

    INITIAL = "Initial"
    CONNECTING = "Connecting"
    FETCHING_METADATA = "FetchingMetadata"
    COMMITTING = "Committing"
    JOINING = "Joining"
    SYNCHRONIZING = "Synchronizing"
    STABLE = "Stable"
    LEAVING = "Leaving"
    STOPPED = "Stopped"


#: The meaning of each state, for the documentation.
STATE_DESCRIPTIONS: dict[DesignMemberState, str] = {
    DesignMemberState.INITIAL: "The user has not started the member.",
    DesignMemberState.CONNECTING: "The member looks for the coordinator or waits before the next "
    "try.",
    DesignMemberState.FETCHING_METADATA: "The member waits for the partition counts of the "
    "topics, or before it fetches them again.",
    DesignMemberState.COMMITTING: "The member has stopped reading and commits before it joins "
    "again.",
    DesignMemberState.JOINING: "The member waits for the response to its JoinGroup request.",
    DesignMemberState.SYNCHRONIZING: "The member waits for the response to its assignment for all.",
    DesignMemberState.STABLE: "The member reads its partitions and sends heartbeats.",
    DesignMemberState.LEAVING: "The member commits and sends LeaveGroup.",
    DesignMemberState.STOPPED: "The member has left the group.",
}


class Timer(StrEnum):
    """The timers of a member."""

    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    RETRY = "retry"
    SESSION = "session"
    REQUEST = "request"  # a response is missing
    STALL = "stall"  # fires at intervals while the member joins, to notice that it was stopped


Outcome = MemberOutcome[Timer]

#: The stall timer fires this often in a session timeout.
_STALL_CHECKS: Final = 10

#: The errors that joining again does not resolve, and what the user is told beside their names.
_FATAL: Final = {
    ErrorCode.INVALID_GROUP_ID: "",
    ErrorCode.INVALID_SESSION_TIMEOUT: ": the coordinator allows no such session timeout",
    ErrorCode.GROUP_MAX_SIZE_REACHED: ": the metadata of all members would exceed the limit of the "
    "coordinator; send less user data",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "",
}


class DesignMember(ABC):
    """A member with its connection, its session and its owned partitions.

    Args:
        settings: The settings.
        topics: The topics of the subscription.
        pattern: A pattern of topics instead of ``topics``.
    """

    def __init__(
        self,
        settings: DesignMemberSettings,
        topics: frozenset[str],
        pattern: TopicPattern | None = None,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.pattern = pattern
        self.state = DesignMemberState.INITIAL
        self.member_id = ""  # until the coordinator assigns one
        self.generation = -1
        #: The partitions of the current generation.
        self.owned: frozenset[TopicPartition] = frozenset()
        #: True if the positions of ``owned`` were requested or are known.
        self.is_reading = False
        #: Partition counts of the topics, as fetched last.
        self.metadata: dict[str, int] = {}
        self._has_metadata = False
        self._in_flight: Message | None = None
        self._sent_ms = 0  # of the last request
        self._session_end_ms = 0
        # The last two stall checks. Between them the member has handled all earlier responses.
        self._stall_checks_ms = (0, 0)
        self._is_connected = False
        self._is_heartbeat_due = False  # it waits for the response to another request
        self._must_rejoin = False
        self._is_leaving = False

    @property
    def is_stable(self) -> bool:
        """True if the member reads its partitions, or has left."""
        if self.state is DesignMemberState.STABLE:
            return not self._must_rejoin and (self.is_reading or not self.owned)
        return self.state is DesignMemberState.STOPPED

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        outcome = Outcome(event.at_ms)
        if self.state is DesignMemberState.STOPPED:
            return outcome
        if self.is_session_over(event.at_ms):
            # The process was stopped. This event may be older than what other members did since.
            self._end_session(outcome)
            if isinstance(event, ResponseReceived | TimerFired | Connected | Disconnected):
                return outcome  # it belongs to the connection that is closed now
        match event:
            case Started():
                self._connect(outcome)
            case Connected():
                self._is_connected = True
                self._proceed(outcome)
            case Disconnected():
                self._on_disconnected(outcome)
            case MetadataFetched(topics=topics):
                self.metadata, self._has_metadata = topics, True
                if self.state is DesignMemberState.FETCHING_METADATA:
                    self._proceed(outcome)
            case PartitionCountsChanged(topics=topics):
                self._on_metadata_changed(outcome, topics)
            case SubscriptionChanged(topics=topics):
                self.topics = topics
                self._rejoin(outcome)
            case LeaveRequested():
                self._is_leaving = True
                self._on_leave_requested(outcome)
            case ResponseReceived(message=message):
                self._end_request(outcome)
                self._on_response(outcome, message)
            case PositionsTaken(positions=positions):
                self._commit(outcome, positions)
            case TimerFired(key=key):
                self._on_timer(outcome, Timer(str(key)))
            case _:
                raise AssertionError(f"unexpected event {event}")
        return outcome

    def is_session_over(self, at_ms: int) -> bool:
        """True if the coordinator may have assigned the member's partitions to other members."""
        return bool(self.owned) and at_ms >= self._session_end_ms

    # Connection

    def _connect(self, outcome: Outcome) -> None:
        self.state = DesignMemberState.CONNECTING
        self._is_connected = False
        self._end_request(outcome)
        outcome.cancel_timer(Timer.RETRY)
        outcome.act(Connect())

    def _on_disconnected(self, outcome: Outcome) -> None:
        """Connect again after a back-off. The member keeps reading while its session may last."""
        self._is_connected = False
        self._end_request(outcome)
        if self.state is DesignMemberState.STABLE:
            outcome.cancel_timer(Timer.HEARTBEAT)
            outcome.cancel_timer(Timer.COMMIT)
        self.state = DesignMemberState.CONNECTING
        outcome.arm_timer(Timer.RETRY, self.settings.retry_backoff_ms)

    def _proceed(self, outcome: Outcome) -> None:
        """Do the next step of a connected member."""
        if self._is_leaving:
            self._commit_or(outcome, DesignMemberState.LEAVING)
        elif self.owned and not self._must_rejoin:
            self.state = DesignMemberState.STABLE  # reconnected within the session
            self._schedule_timers(outcome)
            self._heartbeat(outcome)
        elif not self._has_metadata:
            self._stop_reading(outcome)  # it may have read since its connection was lost
            self._fetch_metadata(outcome)
        elif self.owned:
            self._commit_or(outcome, DesignMemberState.COMMITTING)
        else:
            self._join(outcome)

    def _fetch_metadata(self, outcome: Outcome) -> None:
        self.state = DesignMemberState.FETCHING_METADATA
        outcome.act(FetchMetadata(is_from_coordinator=self.fetches_from_coordinator))

    @property
    def fetches_from_coordinator(self) -> bool:
        """True if metadata comes from the coordinator, also that of a refresh by the shell."""
        return False

    # Rebalance

    def _rejoin(self, outcome: Outcome, *, has_new_metadata: bool = False) -> None:
        """Start a rebalance: stop, fetch metadata, commit, and join.

        With the metadata of each join, no change is found that the group has handled already.
        """
        self._must_rejoin = True
        self._has_metadata = has_new_metadata
        if self.state is DesignMemberState.STABLE and self._in_flight is None:
            self._stop_reading(outcome)
            self._proceed(outcome)

    def _stop_reading(self, outcome: Outcome) -> None:
        if self.is_reading:
            outcome.act(StopReading())
            self.is_reading = False
        outcome.cancel_timer(Timer.HEARTBEAT)
        outcome.cancel_timer(Timer.COMMIT)

    def _commit_or(self, outcome: Outcome, state: DesignMemberState) -> None:
        """Commit what was read, in ``state``. The response continues the step."""
        self._stop_reading(outcome)
        self.state = state
        if self.owned and self.generation >= 0:
            outcome.act(CommitDue(partitions=self.owned))
        else:
            self._on_committed(outcome)

    def _on_committed(self, outcome: Outcome) -> None:
        match self.state:
            case DesignMemberState.COMMITTING if self._is_leaving:
                self.state = DesignMemberState.LEAVING
                self._send_leave(outcome)
            case DesignMemberState.COMMITTING:
                self.owned = frozenset()
                self._join(outcome)
            case DesignMemberState.LEAVING:
                self._send_leave(outcome)
            case _:
                self._continue(outcome)

    def _commit(self, outcome: Outcome, positions: dict[TopicPartition, int]) -> None:
        """Commit positions as a member of the current generation."""
        if not positions:
            self._on_committed(outcome)
            return
        by_topic: dict[str, list[OffsetCommitPartition]] = {}
        for (topic, partition), offset in sorted(positions.items()):
            by_topic.setdefault(topic, []).append(
                OffsetCommitPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=None
                )
            )
        self._send(
            outcome,
            OffsetCommitRequest(
                group_id=self.settings.group_id,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[
                    OffsetCommitTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic.items()
                ],
            ),
        )

    def _join(self, outcome: Outcome) -> None:
        self._must_rejoin = False
        self.state = DesignMemberState.JOINING
        outcome.cancel_timer(Timer.SESSION)
        self._stall_checks_ms = (outcome.at_ms, outcome.at_ms)
        self._schedule_stall_check(outcome)
        self._send(outcome, self._join_request(), self.settings.join_timeout_ms)

    def _send(self, outcome: Outcome, request: Message, timeout_ms: int | None = None) -> None:
        """Send a request. Without a response in time, the member connects again.

        Args:
            outcome: The outcome of the event.
            request: The request.
            timeout_ms: The time to wait for the response; None is the session timeout, after which
                the coordinator has removed the member anyway.
        """
        self._in_flight = request
        self._sent_ms = outcome.at_ms
        outcome.arm_timer(
            Timer.REQUEST, self.settings.session_timeout_ms if timeout_ms is None else timeout_ms
        )
        outcome.send(request)

    def _end_request(self, outcome: Outcome) -> None:
        """Wait for no response: it has arrived, or its connection is closed."""
        self._in_flight = None
        outcome.cancel_timer(Timer.REQUEST)

    def _schedule_stall_check(self, outcome: Outcome) -> None:
        interval_ms = self.settings.session_timeout_ms // _STALL_CHECKS
        outcome.arm_timer(Timer.STALL, max(1, interval_ms))

    @abstractmethod
    def _join_request(self) -> Message:
        """Return the JoinGroup request of the design."""

    @abstractmethod
    def _on_join_response(self, outcome: Outcome, response: Any) -> None:
        """Handle the JoinGroup response of the design."""

    def _start(self, outcome: Outcome, owned: Iterable[TopicPartition]) -> None:
        """Own these partitions: request their committed offsets, then read.

        The coordinator counts the session from when it sent the response. That was after the last
        but one stall check: an earlier response would have been handled before the last one.
        """
        self.owned = frozenset(owned)
        self.state = DesignMemberState.STABLE
        outcome.cancel_timer(Timer.STALL)
        before_response_ms = self._stall_checks_ms[0]
        self._set_session_end(outcome, before_response_ms + self.settings.session_timeout_ms)
        if self.is_session_over(outcome.at_ms):
            self._end_session(outcome)
            return
        if not self.owned:
            self._schedule_timers(outcome)
            self._after_request(outcome)
            return
        self._fetch_offsets(outcome)

    def _fetch_offsets(self, outcome: Outcome) -> None:
        """Request the committed offsets of the partitions, to read from there."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        self._send(
            outcome,
            OffsetFetchRequest(
                group_id=self.settings.group_id,
                topics=[
                    OffsetFetchTopic(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic.items()
                ],
            ),
        )

    def _schedule_timers(self, outcome: Outcome) -> None:
        outcome.arm_timer(Timer.HEARTBEAT, self.settings.heartbeat_interval_ms)
        outcome.arm_timer(Timer.COMMIT, self.settings.commit_interval_ms)

    # Responses

    def _on_response(self, outcome: Outcome, message: Message) -> None:
        match message:
            case HeartbeatResponse(error_code=code):
                self._on_session_response(outcome, to_error_code(code))
            case OffsetCommitResponse(topics=topics):
                codes = [each.error_code for topic in topics for each in topic.partitions]
                self._on_commit_response(outcome, to_error_code(next(filter(None, codes), 0)))
            case OffsetFetchResponse(topics=topics):
                offsets = {
                    TopicPartition(topic.name, each.partition_index): each.committed_offset
                    for topic in topics
                    for each in topic.partitions
                }
                outcome.act(StartReading(offsets=offsets))
                self.is_reading = True
                self._schedule_timers(outcome)
                self._after_request(outcome)
            case LeaveGroupResponse():
                self._stop(outcome)
            case _:
                self._on_join_response(outcome, message)

    def _on_commit_response(self, outcome: Outcome, error: ErrorCode) -> None:
        if error and self.state is DesignMemberState.STABLE:
            self._on_session_response(outcome, error)
        else:  # a member that leaves its generation anyway has nothing to repeat
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif not error and self.state is DesignMemberState.STABLE:
                self._extend_session(outcome)
            self._on_committed(outcome)
            # Only the response to a heartbeat tells of a rebalance: commits do not postpone it.
            if (
                self._is_heartbeat_due
                and self.state is DesignMemberState.STABLE
                and not self._in_flight
            ):
                self._heartbeat(outcome)

    def _on_session_response(self, outcome: Outcome, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE:
                self._extend_session(outcome)
                self._after_request(outcome)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin(outcome)
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.UNKNOWN_MEMBER_ID:
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                self._lose(outcome)
                self._join_or_connect(outcome)
            case _:
                self._fail_request(outcome, error)

    def _extend_session(self, outcome: Outcome) -> None:
        """Count the session from when the request was sent: the coordinator got it later."""
        self._set_session_end(outcome, self._sent_ms + self.settings.session_timeout_ms)

    def _set_session_end(self, outcome: Outcome, end_ms: int) -> None:
        self._session_end_ms = end_ms
        outcome.arm_timer(Timer.SESSION, max(0, end_ms - outcome.at_ms))

    def _fail_request(self, outcome: Outcome, error: ErrorCode) -> None:
        """Handle an error of the coordinator: report it, or connect again."""
        if error in _FATAL:
            self._fail(outcome, f"{error.name}{_FATAL[error]}")
        else:
            outcome.act(Disconnect())
            self._on_disconnected(outcome)

    def _fail(self, outcome: Outcome, reason: str) -> None:
        """Report an error that joining again does not resolve, and stop."""
        self._lose(outcome)
        outcome.act(ReportError(reason=reason))
        self._stop(outcome)

    def _after_request(self, outcome: Outcome) -> None:
        """Schedule the next heartbeat after a response, and continue."""
        if self.state is DesignMemberState.STABLE:
            outcome.arm_timer(Timer.HEARTBEAT, self.settings.heartbeat_interval_ms)
        self._continue(outcome)

    def _continue(self, outcome: Outcome) -> None:
        """Continue with what waited for the response of an earlier request."""
        if self._is_leaving:
            self._commit_or(outcome, DesignMemberState.LEAVING)
        elif self._must_rejoin:
            self._rejoin(outcome)
        elif self.state is DesignMemberState.STABLE and self.owned and not self.is_reading:
            self._fetch_offsets(outcome)  # the connection was lost before the first response

    def _lose(self, outcome: Outcome) -> None:
        """Give up all partitions without a commit: other members may own them already."""
        self._stop_reading(outcome)
        self.owned = frozenset()
        self.generation = -1
        outcome.cancel_timer(Timer.SESSION)

    def _join_or_connect(self, outcome: Outcome) -> None:
        if self._is_connected:
            self._proceed(outcome)
        else:
            self._connect(outcome)

    # Timers

    def _on_timer(self, outcome: Outcome, timer: Timer) -> None:
        match timer:
            case Timer.HEARTBEAT:
                self._is_heartbeat_due = True
                if self.state is DesignMemberState.STABLE and self._in_flight is None:
                    self._heartbeat(outcome)
            case Timer.COMMIT:
                outcome.arm_timer(Timer.COMMIT, self.settings.commit_interval_ms)
                if self.state is DesignMemberState.STABLE and self._in_flight is None:
                    outcome.act(CommitDue(partitions=self.owned))
            case Timer.SESSION:
                self._end_session(outcome)
            case Timer.RETRY if self.state is DesignMemberState.FETCHING_METADATA:
                self._fetch_metadata(outcome)
            case Timer.RETRY:
                self._connect(outcome)
            case Timer.REQUEST:
                outcome.act(Disconnect())
                self._on_disconnected(outcome)
            case Timer.STALL:
                if self.state in (DesignMemberState.JOINING, DesignMemberState.SYNCHRONIZING):
                    self._stall_checks_ms = (self._stall_checks_ms[1], outcome.at_ms)
                    self._schedule_stall_check(outcome)

    def _end_session(self, outcome: Outcome) -> None:
        """Give up all partitions: the coordinator may have assigned them to other members."""
        if self.owned:
            self._lose(outcome)
            self._must_rejoin = True
            outcome.act(Disconnect())
            self._connect(outcome)

    def _heartbeat(self, outcome: Outcome) -> None:
        self._is_heartbeat_due = False
        self._send(
            outcome,
            HeartbeatRequest(
                group_id=self.settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
            ),
        )

    # Metadata and leaving

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics of the subscription; with a pattern, those that exist and match."""
        return self._watched_topics(self.metadata)

    def _watched_topics(self, metadata: Mapping[str, int]) -> frozenset[str]:
        """Return the topics whose changes concern the member."""
        pattern = self.pattern
        if pattern is None:
            return self.topics
        return frozenset(name for name in metadata if pattern.matches(name))

    def _on_metadata_changed(self, outcome: Outcome, topics: dict[str, int]) -> None:
        """Rejoin if the change concerns the subscribed topics."""
        before = {name: self.metadata.get(name) for name in self._watched_topics(self.metadata)}
        self.metadata, self._has_metadata = topics, True
        if before != {name: topics.get(name) for name in self._watched_topics(topics)}:
            self._rejoin(outcome, has_new_metadata=True)

    def _on_leave_requested(self, outcome: Outcome) -> None:
        match self.state:
            case DesignMemberState.INITIAL | DesignMemberState.CONNECTING:
                self._lose(outcome)
                self._stop(outcome)
            case DesignMemberState.JOINING | DesignMemberState.SYNCHRONIZING:
                # The parked request blocks its connection: leave over another one.
                outcome.act(Disconnect())
                self._connect(outcome)
            case DesignMemberState.STABLE if self._in_flight is None:
                self._commit_or(outcome, DesignMemberState.LEAVING)

    def _send_leave(self, outcome: Outcome) -> None:
        self.owned = frozenset()
        self._send(
            outcome,
            LeaveGroupRequest(group_id=self.settings.group_id, member_id=self.member_id),
        )

    def _stop(self, outcome: Outcome) -> None:
        self.state = DesignMemberState.STOPPED
        self.owned = frozenset()
        for timer in Timer:
            outcome.cancel_timer(timer)
        outcome.act(Disconnect())
