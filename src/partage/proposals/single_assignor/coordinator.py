"""The coordinator of the design with a single assignor."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from partage.model.errors import ErrorCode
from partage.proposals.join_group.coordinator import JoinGroupCoordinator, Outcome
from partage.proposals.join_group.group import (
    DesignGroup,
    DesignGroupState,
    MemberEntry,
    MemberSessionTimer,
    SynchronizeTimer,
)
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.single_assignor.messages import (
    Joined,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinPhase,
    MemberWithMetadata,
    Synchronize,
    Synchronized,
)


class SynchronizerChoice(StrEnum):
    """The four ways to choose the synchronizer that the document discusses."""

    RANDOM = "random"
    LAST_TO_JOIN = "last-to-join"  # it is the least likely to have failed since
    NEWEST = "newest"  # the member that joined the group last; it is likely to be upgraded
    HIGHEST_VERSION = "highest-version"  # of the metadata


class TimeoutReaction(StrEnum):
    """The reactions to a synchronizer that is too late. The document prefers the first."""

    FAIL_GENERATION = "fail-generation"  # all members get an error and join again
    NEXT_SYNCHRONIZER = "next-synchronizer"  # the failed one is removed


class SingleAssignorCoordinator(JoinGroupCoordinator):
    """Sends the metadata of all members to one member, and its assignment to all.

    Args:
        settings: The coordinator's settings.
        choice: How the synchronizer is chosen.
        reaction: What follows if it does not answer in time.
    """

    next_state: ClassVar[DesignGroupState] = DesignGroupState.SYNCHRONIZING

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        choice: SynchronizerChoice = SynchronizerChoice.RANDOM,
        reaction: TimeoutReaction = TimeoutReaction.FAIL_GENERATION,
    ) -> None:
        super().__init__(settings)
        self._choice = choice
        self._reaction = reaction

    def _handle_join(self, outcome: Outcome, connection: ConnectionId, message: Any) -> None:
        assert isinstance(message, JoinGroupRequest), f"unexpected request {message}"
        match message:
            case JoinGroupRequest(join=JoinPhase() as join, synchronized=None):
                error = self._validate_join(message, join)
                if error:
                    outcome.send(connection, error_response(error, join.member_id))
                else:
                    group = self._group(message.group_id)
                    self._park_member(
                        outcome,
                        group,
                        connection,
                        join,
                        member_id=join.member_id,
                        session_timeout_ms=join.session_timeout,
                        protocol_type=message.protocol_type,
                        metadata_bytes=len(join.member_metadata),
                    )
            case JoinGroupRequest(join=None, synchronized=Synchronized() as synchronized):
                self._synchronize(outcome, connection, message.group_id, synchronized)
            case _:
                outcome.send(connection, error_response(ErrorCode.INVALID_REQUEST, ""))

    def _validate_join(self, request: JoinGroupRequest, join: JoinPhase) -> ErrorCode:
        error = self._validate_common(
            request.group_id, join.member_id, join.session_timeout, len(join.member_metadata)
        )
        if error:
            return error
        if not request.protocol_type or join.synchronize_timeout < 0:
            return ErrorCode.INVALID_REQUEST
        group = self.groups.get(request.group_id)
        if (
            group is not None
            and group.state is not DesignGroupState.EMPTY
            and group.protocol_type != request.protocol_type
            and set(group.members) != {join.member_id}
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # Synchronization

    def _complete_join(self, outcome: Outcome, group: DesignGroup) -> None:
        self._ask_synchronizer(outcome, group)

    def _ask_synchronizer(self, outcome: Outcome, group: DesignGroup) -> None:
        """Send the metadata of all members to one of them. The others stay parked."""
        chosen = self._choose_synchronizer(outcome, group)
        group.synchronizer = chosen.id
        join: Any = chosen.request
        timeout_ms = join.synchronize_timeout or self.settings.synchronize_timeout_ms
        outcome.arm_timer(SynchronizeTimer(group.id), timeout_ms)
        members = [_describe(member) for member in group.members.values()]
        self._answer(
            outcome,
            group,
            chosen,
            JoinGroupResponse(
                error_code=ErrorCode.NONE,
                group_generation_id=group.generation,
                member_id=chosen.id,
                synchronize=Synchronize(members=members),
            ),
        )
        if timeout_ms >= chosen.session_timeout_ms:
            # It sends no heartbeats while it assigns. Its session continues after that time.
            outcome.arm_timer(
                MemberSessionTimer(group.id, chosen.id), timeout_ms + chosen.session_timeout_ms
            )

    def _choose_synchronizer(self, outcome: Outcome, group: DesignGroup) -> MemberEntry:
        members = list(group.members.values())
        match self._choice:
            case SynchronizerChoice.RANDOM:
                return members[outcome.draw % len(members)]
            case SynchronizerChoice.LAST_TO_JOIN:
                return max(members, key=lambda member: member.join_order)
            case SynchronizerChoice.NEWEST:
                return max(members, key=lambda member: member.number)
            case SynchronizerChoice.HIGHEST_VERSION:
                return max(members, key=_metadata_version)

    def _synchronize(
        self, outcome: Outcome, connection: ConnectionId, group_id: str, request: Synchronized
    ) -> None:
        """Handle the assignment of the synchronizer, or its error."""
        error = self._validate_synchronizer(group_id, request)
        if error:
            outcome.send(connection, error_response(error, request.member_id))
            return
        group = self.groups[group_id]
        outcome.cancel_timer(SynchronizeTimer(group.id))
        self._park(group, group.members[request.member_id], connection)
        if request.error_code:
            self._fail_group(outcome, group, request.error_code)
            return
        group.state = DesignGroupState.STABLE
        states = {each.member_id: each.synced_member_state for each in request.members}
        ids = list(group.members)
        for member in group.members.values():
            if member.is_parked:
                response = JoinGroupResponse(
                    error_code=ErrorCode.NONE,
                    group_generation_id=group.generation,
                    member_id=member.id,
                    joined=Joined(
                        synced_member_state=states.get(member.id, b""), group_members=ids
                    ),
                )
                self._answer(outcome, group, member, response)
            else:  # its connection was lost; it joins again or its session ends
                self._restart_session(outcome, group, member)

    def _validate_synchronizer(self, group_id: str, request: Synchronized) -> ErrorCode:
        member = self._validate(group_id, request.member_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return member
        group = self.groups[group_id]
        if group.state is not DesignGroupState.SYNCHRONIZING or group.synchronizer != member.id:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _fail_group(self, outcome: Outcome, group: DesignGroup, error_code: int) -> None:
        """Send the synchronizer's error to all members. Joining again would not help."""
        for member in list(group.members.values()):
            if member.is_parked:
                response = JoinGroupResponse(
                    error_code=error_code, group_generation_id=-1, member_id=member.id
                )
                self._answer(outcome, group, member, response)
            self._forget(outcome, group, member)
        self._set_empty(outcome, group)

    def _on_synchronize_timeout(self, outcome: Outcome, group: DesignGroup) -> None:
        if group.state is not DesignGroupState.SYNCHRONIZING or group.synchronizer is None:
            return
        if self._reaction is TimeoutReaction.NEXT_SYNCHRONIZER:
            self._forget(outcome, group, group.members[group.synchronizer])
            if any(member.is_parked for member in group.members.values()):
                self._drop_absent(outcome, group)
                self._ask_synchronizer(outcome, group)
                return
        self._start_join_phase_or_empty(outcome, group)
        for member in list(group.members.values()):
            if member.is_parked:
                response = error_response(ErrorCode.REQUEST_TIMED_OUT, member.id)
                self._answer(outcome, group, member, response)


def error_response(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return the response to a rejected or failed request."""
    return JoinGroupResponse(error_code=error, group_generation_id=-1, member_id=member_id)


def _describe(member: MemberEntry) -> MemberWithMetadata:
    join: Any = member.request
    return MemberWithMetadata(member_id=member.id, member_metadata=join.member_metadata)


def _metadata_version(member: MemberEntry) -> int:
    join: Any = member.request
    version: int = join.metadata_version
    return version
