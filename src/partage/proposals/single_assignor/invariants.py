"""Invariants of the design with a single assignor, beside those of `join_group.invariants`.

1. A group waits for an assignment only in this design, and a stable group has a synchronizer or
   none of its members was asked since it was loaded.
2. A member that assigns waits for metadata, for its assignor, or for the response.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final

from partage.model.errors import ErrorCode
from partage.proposals.join_group import invariants
from partage.proposals.join_group.checker import (
    Assignments,
    Dialect,
    JoinRequest,
    JoinResponse,
    KnownMember,
)
from partage.proposals.join_group.group import DesignGroupState
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
)
from partage.proposals.single_assignor.member import SingleAssignorMember
from partage.proposals.single_assignor.messages import JoinGroupRequest, JoinGroupResponse
from partage.wire.types import Message

#: The rank of a member, by the choice of the synchronizer. A random choice has none.
SYNCHRONIZER_RANKS: Final[Mapping[SynchronizerChoice, Callable[[KnownMember], int]]] = {
    SynchronizerChoice.LAST_TO_JOIN: lambda member: member.join_number,
    SynchronizerChoice.NEWEST: lambda member: member.number,
    SynchronizerChoice.HIGHEST_VERSION: lambda member: member.join.metadata_version,
}


def check_coordinator(
    coordinator: SingleAssignorCoordinator, armed: Mapping[Hashable, int]
) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    invariants.check_coordinator(coordinator, armed)
    for group in coordinator.groups.values():
        if group.state is DesignGroupState.STABLE:
            assert group.synchronizer in group.members, "no member has assigned"


def check_member(member: SingleAssignorMember, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    invariants.check_member(member, armed)
    if member.state is DesignMemberState.SYNCHRONIZING:
        assert member.generation >= 0, "a member assigns without a generation"


class SingleAssignorDialect(Dialect):
    """Reads the JoinGroup messages of the design."""

    def request(self, message: Message) -> JoinRequest | Assignments | None:
        """Return the content of a JoinGroup request; None if it has no phase or two."""
        assert isinstance(message, JoinGroupRequest), f"unexpected {message}"
        join, synchronized = message.join, message.synchronized
        if (join is None) == (synchronized is None):
            return None
        if join is not None:
            return JoinRequest(
                group_id=message.group_id,
                member_id=join.member_id,
                session_timeout_ms=join.session_timeout,
                synchronize_timeout_ms=join.synchronize_timeout,
                protocol_type=message.protocol_type,
                metadata={"": bytes(join.member_metadata)},
                metadata_version=join.metadata_version,
            )
        assert synchronized is not None
        return Assignments(
            group_id=message.group_id,
            member_id=synchronized.member_id,
            generation=synchronized.generation_id,
            error=synchronized.error_code,
            states={
                each.member_id: bytes(each.synced_member_state) for each in synchronized.members
            },
        )

    def join_error(self, join: JoinRequest, others: list[JoinRequest]) -> ErrorCode:
        """Return the error of a request. All members have one protocol type."""
        if not join.protocol_type or join.synchronize_timeout_ms < 0:
            return ErrorCode.INVALID_REQUEST
        is_consistent = {each.protocol_type for each in others} <= {join.protocol_type}
        return ErrorCode.NONE if is_consistent else ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def response(self, message: Message) -> JoinResponse:
        """Return the content of a JoinGroup response."""
        assert isinstance(message, JoinGroupResponse), f"unexpected {message}"
        members = state = ids = None
        if message.synchronize is not None:
            members = {
                each.member_id: bytes(each.member_metadata) for each in message.synchronize.members
            }
        if message.joined is not None:
            state = bytes(message.joined.synced_member_state)
            ids = tuple(message.joined.group_members)
        return JoinResponse(
            error=message.error_code,
            generation=message.group_generation_id,
            member_id=message.member_id,
            members=members,
            state=state,
            ids=ids,
        )
