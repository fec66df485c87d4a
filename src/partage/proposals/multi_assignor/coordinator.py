"""The coordinator of the design with many assignors."""

from __future__ import annotations

import zlib
from typing import Any, ClassVar

from partage.model.errors import ErrorCode
from partage.proposals.join_group.coordinator import JoinGroupCoordinator, Outcome
from partage.proposals.join_group.group import DesignGroup, DesignGroupState, MemberEntry
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor.messages import (
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberMetadataList,
)
from partage.wire import codec


class MultiAssignorCoordinator(JoinGroupCoordinator):
    """Sends the metadata of all members to all members.

    Args:
        settings: The coordinator's settings.
        compresses_members: True if responses contain the members compressed as a whole.
    """

    next_state: ClassVar[DesignGroupState] = DesignGroupState.STABLE

    def __init__(self, settings: CoordinatorSettings, *, compresses_members: bool = False) -> None:
        super().__init__(settings)
        self._compresses_members = compresses_members

    def _handle_join(self, outcome: Outcome, connection: ConnectionId, message: Any) -> None:
        assert isinstance(message, JoinGroupRequest), f"unexpected request {message}"
        error = self._validate_join(message)
        if error:
            outcome.send(connection, error_response(error, message.member_id))
        else:
            self._park_member(
                outcome,
                self._group(message.group_id),
                connection,
                message,
                member_id=message.member_id,
                session_timeout_ms=message.session_timeout,
                protocol_type=message.protocol_type,
                metadata_bytes=_metadata_bytes(message),
            )

    def _validate_join(self, request: JoinGroupRequest) -> ErrorCode:
        """Return the error of a request. Members need a protocol that all of them support."""
        error = self._validate_common(
            request.group_id, request.member_id, request.session_timeout, _metadata_bytes(request)
        )
        if error:
            return error
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        group = self.groups.get(request.group_id)
        if group is None or group.state is DesignGroupState.EMPTY:
            return ErrorCode.NONE
        member = group.members.get(request.member_id)
        known: Any = None if member is None else member.request
        others = len(group.members) - (member is not None)
        if others and (
            request.protocol_type != group.protocol_type
            or not any(
                group.protocol_counts.get(each.name, 0) - _lists(known, each.name) == others
                for each in request.protocols
            )
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _count_request(self, group: DesignGroup, request: Any, by: int) -> None:
        for name in {each.name for each in request.protocols}:
            count = group.protocol_counts.get(name, 0) + by
            if count:
                group.protocol_counts[name] = count
            else:  # members may choose any names
                del group.protocol_counts[name]

    def _complete_join(self, outcome: Outcome, group: DesignGroup) -> None:
        requests = [member.request for member in group.members.values()]
        member_count = len(requests)
        common = {name for name, count in group.protocol_counts.items() if count == member_count}
        protocol = select_protocol(requests, common)
        members = [_describe(member, protocol) for member in group.members.values()]
        compressed = b""
        if self._compresses_members:
            encoded = codec.encoder(MemberMetadataList, 0, False)(
                MemberMetadataList(members=members)
            )
            compressed, members = zlib.compress(b"".join(encoded)), []
        for member in group.members.values():
            response = JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=group.generation,
                protocol_name=protocol,
                member_id=member.id,
                members=members,
                compressed_members=compressed,
            )
            self._answer(outcome, group, member, response)


def error_response(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return the response to a rejected request."""
    return JoinGroupResponse(
        error_code=error, generation_id=-1, protocol_name="", member_id=member_id, members=[]
    )


def select_protocol(requests: list[Any], common: set[str]) -> str:
    """Return the common protocol that most members prefer; the first member decides a tie.

    Args:
        requests: The requests of all members.
        common: The protocols that all of them support.
    """
    votes: dict[str, int] = {}
    for request in requests:
        choice = next(each.name for each in request.protocols if each.name in common)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=lambda name: votes[name])


def _metadata_bytes(request: JoinGroupRequest) -> int:
    return sum(len(each.name) + len(each.metadata) for each in request.protocols)


def _lists(request: Any, protocol: str) -> bool:
    """Return True if a known request lists a protocol."""
    return request is not None and any(each.name == protocol for each in request.protocols)


def _describe(member: MemberEntry, protocol: str) -> JoinGroupMember:
    request: Any = member.request
    metadata = next(each.metadata for each in request.protocols if each.name == protocol)
    return JoinGroupMember(member_id=member.id, metadata=metadata)
