"""The coordinator of the designs with JoinGroup, except for what follows the join phase."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Final

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.group import (
    DesignGroup,
    DesignGroupState,
    ExpirationTimer,
    JoinPhaseTimer,
    MemberEntry,
    MemberSessionTimer,
    SynchronizeTimer,
    TimerKey,
)
from partage.proposals.join_group.records import (
    CommittedOffsetRecord,
    GenerationRecord,
    GroupRemovedRecord,
    Record,
)
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import (
    ConnectionId,
    ConnectionLost,
    CoordinatorOutcome,
    Event,
    MessageReceived,
    TimerFired,
)
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.offset_commit import (
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from partage.wire.apis.offset_fetch import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)
from partage.wire.types import Message

Outcome = CoordinatorOutcome[TimerKey, Record]

#: The offset in a response for a partition without a committed offset.
NO_OFFSET: Final = -1
#: The longest time for which an empty group without offsets is kept. In this interval, Kafka looks
#: for groups to remove (``offsets.retention.check.interval.ms``).
_EMPTY_MAX_MS: Final = 600_000


class JoinGroupCoordinator(ABC):
    """The groups of one coordinator. A subclass implements its design's JoinGroup.

    Args:
        settings: The coordinator's settings.
    """

    #: The state after a join phase.
    next_state: ClassVar[DesignGroupState]

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.groups: dict[str, DesignGroup] = {}
        #: Committed offsets by group, topic and partition.
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        self._parked: dict[
            ConnectionId, tuple[str, str]
        ] = {}  # group and member of a parked request
        self._metadata_bytes = 0  # of all members
        self._has_loaded = False

    # Durable state

    def apply(self, record: Record) -> None:
        """Apply a stored record, both live and while loading."""
        match record:
            case GenerationRecord():
                self._group(record.group_id).generation = record.generation
            case CommittedOffsetRecord():
                of_group = self.offsets.setdefault(record.group_id, {})
                of_group[TopicPartition(record.topic, record.partition)] = record.offset
            case GroupRemovedRecord():
                self.groups.pop(record.group_id, None)
                self.offsets.pop(record.group_id, None)

    def _write(self, outcome: Outcome, record: Record) -> None:
        self.apply(record)
        outcome.records.append(record)

    def _group(self, group_id: str) -> DesignGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = DesignGroup(group_id)
        return group

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        # Not `Outcome(...)`: a call of a generic alias is slow.
        outcome: Outcome
        match event:
            case MessageReceived():
                outcome = CoordinatorOutcome(event.at_ms, event.draw)
                self._handle_message(outcome, event.connection, event.message)
            case TimerFired():
                outcome = CoordinatorOutcome(event.at_ms, event.draw)
                self._handle_timer(outcome, event.key)
            case ConnectionLost():
                outcome = CoordinatorOutcome(event.at_ms)
                self._handle_connection_lost(event.connection)
            case _:
                raise AssertionError(f"unexpected event {event}")
        if not self._has_loaded:
            self._has_loaded = True
            for group in self.groups.values():
                if group.state is DesignGroupState.EMPTY:
                    # Members of the earlier coordinator may join again within their sessions.
                    least_ms = self.settings.session_timeout_max_ms
                    self._schedule_expiration(outcome, group, least_ms)
        return outcome

    def _handle_message(self, outcome: Outcome, connection: ConnectionId, message: Message) -> None:
        match message:
            case HeartbeatRequest():
                error = self._heartbeat(outcome, message)
                outcome.send(connection, HeartbeatResponse(error_code=error))
            case LeaveGroupRequest():
                error = self._leave(outcome, message)
                outcome.send(connection, LeaveGroupResponse(error_code=error))
            case OffsetCommitRequest():
                outcome.send(connection, self._commit(outcome, message))
            case OffsetFetchRequest():
                outcome.send(connection, self._fetch_offsets(message))
            case _:
                self._handle_join(outcome, connection, message)

    @abstractmethod
    def _handle_join(self, outcome: Outcome, connection: ConnectionId, message: Any) -> None:
        """Handle the JoinGroup request of the design."""

    def _handle_timer(self, outcome: Outcome, key: Hashable) -> None:
        match key:
            case MemberSessionTimer(group_id=group_id, member_id=member_id):
                group = self.groups[group_id]
                member = group.members.get(member_id)
                if member is not None and not member.is_parked:
                    self._remove(outcome, group, member)
            case JoinPhaseTimer(group_id=group_id):
                self._end_join_phase(outcome, self.groups[group_id])
            case SynchronizeTimer(group_id=group_id):
                self._on_synchronize_timeout(outcome, self.groups[group_id])
            case ExpirationTimer(group_id=group_id):
                assert not self.groups[group_id].members, "the timer of a group with members"
                self._write(outcome, GroupRemovedRecord(group_id=group_id))

    def _on_synchronize_timeout(self, outcome: Outcome, group: DesignGroup) -> None:
        raise AssertionError("this design does not arm the timer")

    def _handle_connection_lost(self, connection: ConnectionId) -> None:
        """Forget a parked request. The member stays until its session or the join phase ends."""
        parked = self._parked.pop(connection, None)
        if parked is not None:
            group_id, member_id = parked
            group = self.groups[group_id]
            group.unpark(group.members[member_id])

    # Members

    def _validate_common(
        self, group_id: str, member_id: str, session_timeout_ms: int, metadata_bytes: int
    ) -> ErrorCode:
        """Return the error of a JoinGroup request in the fields that all designs have."""
        settings = self.settings
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not (
            settings.session_timeout_min_ms <= session_timeout_ms <= settings.session_timeout_max_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self.groups.get(group_id)
        if member_id and (group is None or member_id not in group.members):
            return ErrorCode.UNKNOWN_MEMBER_ID
        known_bytes = group.members[member_id].metadata_bytes if group and member_id else 0
        if self._metadata_bytes - known_bytes + metadata_bytes > settings.metadata_bytes_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _validate(self, group_id: str, member_id: str, generation: int) -> MemberEntry | ErrorCode:
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return member

    def _heartbeat(self, outcome: Outcome, request: HeartbeatRequest) -> ErrorCode:
        member = self._validate(request.group_id, request.member_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return member
        group = self.groups[request.group_id]
        self._restart_session(outcome, group, member)
        return (
            ErrorCode.NONE
            if group.state is DesignGroupState.STABLE
            else ErrorCode.REBALANCE_IN_PROGRESS
        )

    def _leave(self, outcome: Outcome, request: LeaveGroupRequest) -> ErrorCode:
        group = self.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if group is None or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(outcome, group, member)
        return ErrorCode.NONE

    def _restart_session(self, outcome: Outcome, group: DesignGroup, member: MemberEntry) -> None:
        if member.is_parked:  # its session begins with the response
            return
        outcome.arm_timer(MemberSessionTimer(group.id, member.id), member.session_timeout_ms)

    def _remove(self, outcome: Outcome, group: DesignGroup, member: MemberEntry) -> None:
        """Remove a member, and start a join phase for the remaining ones."""
        self._forget(outcome, group, member)
        if group.state is not DesignGroupState.JOINING or not group.members:
            self._start_join_phase_or_empty(outcome, group)
        if group.state is DesignGroupState.JOINING:
            self._end_join_phase_if_complete(outcome, group)

    def _start_join_phase_or_empty(self, outcome: Outcome, group: DesignGroup) -> None:
        if group.members:
            self._start_join_phase(outcome, group)
        else:
            self._set_empty(outcome, group)

    def _forget(self, outcome: Outcome, group: DesignGroup, member: MemberEntry) -> None:
        connection = group.unpark(member)
        if connection is not None:
            self._parked.pop(connection, None)
        del group.members[member.id]
        self._count_request(group, member.request, -1)
        self._metadata_bytes -= member.metadata_bytes
        outcome.cancel_timer(MemberSessionTimer(group.id, member.id))

    def _set_empty(self, outcome: Outcome, group: DesignGroup) -> None:
        group.state = DesignGroupState.EMPTY
        group.protocol_type = ""
        group.synchronizer = None
        group.is_delayed = False
        outcome.cancel_timer(JoinPhaseTimer(group.id))
        outcome.cancel_timer(SynchronizeTimer(group.id))
        self._schedule_expiration(outcome, group)

    def _schedule_expiration(self, outcome: Outcome, group: DesignGroup, least_ms: int = 0) -> None:
        """Remove an empty group after a time, so that its name takes no memory forever."""
        delay_ms = self.settings.offsets_retention_ms
        if group.id not in self.offsets:
            delay_ms = min(delay_ms, _EMPTY_MAX_MS)
        outcome.arm_timer(ExpirationTimer(group.id), max(delay_ms, least_ms))

    # Join phase

    def _park_member(
        self,
        outcome: Outcome,
        group: DesignGroup,
        connection: ConnectionId,
        request: Message,
        *,
        member_id: str,
        session_timeout_ms: int,
        protocol_type: str,
        metadata_bytes: int,
    ) -> None:
        """Add or update the member of a valid JoinGroup request and park it.

        A new member has an empty member id.

        A request starts a join phase if the group is in none, even if the member's metadata is the
        same: a member joins again to refetch metadata or because it lost its assignment.
        """
        member = group.members.get(member_id)
        if member is None:
            group.member_count += 1
            member = MemberEntry(
                id=f"member-{outcome.draw:016x}",
                number=group.member_count,
                session_timeout_ms=session_timeout_ms,
                request=request,
            )
            group.members[member.id] = member
        else:
            self._count_request(group, member.request, -1)
            self._metadata_bytes -= member.metadata_bytes
        member.request, member.metadata_bytes = request, metadata_bytes
        self._count_request(group, request, +1)
        self._metadata_bytes += metadata_bytes
        member.session_timeout_ms = session_timeout_ms
        group.protocol_type = protocol_type  # the only member may change it
        if group.state is DesignGroupState.EMPTY:
            outcome.cancel_timer(ExpirationTimer(group.id))
            self._start_join_phase(outcome, group)
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.is_delayed = delay_ms > 0
            if group.is_delayed:
                outcome.arm_timer(JoinPhaseTimer(group.id), delay_ms)
        elif group.state is not DesignGroupState.JOINING:
            self._start_join_phase(outcome, group)
        self._park(group, member, connection)
        outcome.cancel_timer(MemberSessionTimer(group.id, member.id))
        self._end_join_phase_if_complete(outcome, group)

    def _park(self, group: DesignGroup, member: MemberEntry, connection: ConnectionId) -> None:
        """Store the connection of a request. An earlier parked one of the member is forgotten."""
        if member.connection is not None:
            del self._parked[member.connection]
        group.park(member, connection)
        self._parked[connection] = (group.id, member.id)

    def _count_request(self, group: DesignGroup, request: Message, by: int) -> None:  # noqa: B027
        """Count a request as one of a member (``by`` is +1) or as no longer one (-1)."""

    def _start_join_phase(self, outcome: Outcome, group: DesignGroup) -> None:
        """Wait for the JoinGroup requests of all members, for the longest session timeout."""
        group.state = DesignGroupState.JOINING
        group.synchronizer = None
        outcome.cancel_timer(SynchronizeTimer(group.id))
        timeout_ms = max(member.session_timeout_ms for member in group.members.values())
        outcome.arm_timer(JoinPhaseTimer(group.id), timeout_ms)

    def _end_join_phase_if_complete(self, outcome: Outcome, group: DesignGroup) -> None:
        if group.has_all_joined and not group.is_delayed:
            self._end_join_phase(outcome, group)

    def _end_join_phase(self, outcome: Outcome, group: DesignGroup) -> None:
        """Start a generation with the members that have joined; drop the others."""
        outcome.cancel_timer(JoinPhaseTimer(group.id))
        group.is_delayed = False
        self._drop_absent(outcome, group)
        if not group.members:
            self._set_empty(outcome, group)
            return
        self._write(outcome, GenerationRecord(group_id=group.id, generation=group.generation + 1))
        group.state = self.next_state
        self._complete_join(outcome, group)

    def _drop_absent(self, outcome: Outcome, group: DesignGroup) -> None:
        """Remove the members without a parked JoinGroup request."""
        for member in [each for each in group.members.values() if not each.is_parked]:
            self._forget(outcome, group, member)

    @abstractmethod
    def _complete_join(self, outcome: Outcome, group: DesignGroup) -> None:
        """Continue after the join phase: all members are parked and the generation has begun."""

    def _answer(
        self, outcome: Outcome, group: DesignGroup, member: MemberEntry, response: Message
    ) -> None:
        """Send the response to a member's parked request, and start its session."""
        connection = group.unpark(member)
        assert connection is not None, f"{member.id} has no parked request"
        self._parked.pop(connection, None)
        outcome.send(connection, response)
        self._restart_session(outcome, group, member)

    # Offsets

    def _commit(self, outcome: Outcome, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets of a member of the current generation.

        A member may commit during the join phase, before it sends its own JoinGroup request.
        """
        member = self._validate(
            request.group_id, request.member_id, request.generation_id_or_member_epoch
        )
        error = ErrorCode.NONE
        if isinstance(member, ErrorCode):
            error = member
        else:
            self._restart_session(outcome, self.groups[request.group_id], member)
            for topic in request.topics:
                for each in topic.partitions:
                    self._write(
                        outcome,
                        CommittedOffsetRecord(
                            group_id=request.group_id,
                            topic=topic.name,
                            partition=each.partition_index,
                            offset=each.committed_offset,
                        ),
                    )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitTopicResult(
                    name=topic.name,
                    partitions=[
                        OffsetCommitPartitionResult(
                            partition_index=each.partition_index, error_code=error
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        offsets = self.offsets.get(request.group_id, {})
        return OffsetFetchResponse(
            topics=[
                OffsetFetchTopicResult(
                    name=topic.name,
                    partitions=[
                        OffsetFetchPartitionResult(
                            partition_index=index,
                            committed_offset=offsets.get(
                                TopicPartition(topic.name, index), NO_OFFSET
                            ),
                            metadata=None,
                            error_code=ErrorCode.NONE,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
        )
