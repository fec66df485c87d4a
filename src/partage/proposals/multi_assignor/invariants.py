"""Invariants of the design with many assignors, beside those of `join_group.invariants`.

Coordinator:

1. The protocols are counted as the members' requests list them.
2. All members support at least one common protocol.

Member:

3. A member of an inactive sub-group owns nothing.
4. A stable member has no disagreement with others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from partage.model.errors import ErrorCode
from partage.proposals.join_group import invariants
from partage.proposals.join_group.checker import Dialect, JoinRequest, JoinResponse
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.multi_assignor.computation import group_members
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember
from partage.proposals.multi_assignor.messages import JoinGroupRequest, JoinGroupResponse
from partage.wire.types import Message


def check_coordinator(coordinator: MultiAssignorCoordinator, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    invariants.check_coordinator(coordinator, armed)
    for group in coordinator.groups.values():
        requests: list[Any] = [member.request for member in group.members.values()]
        counts = Counter(
            name for request in requests for name in {each.name for each in request.protocols}
        )
        known = Counter({name: count for name, count in group.protocol_counts.items() if count})
        assert known == counts, f"{known} are counted, {counts} are listed"
        is_common = len(requests) in counts.values()
        assert is_common or not requests, f"no protocol is common: {counts}"


def check_member(member: MultiAssignorMember, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    invariants.check_member(member, armed)
    assert not (member.is_idle and member.owned), "an inactive member owns partitions"
    if member.state is DesignMemberState.STABLE:
        assert not member.disagreements, f"{member.disagreements} disagreements of a stable member"


class MultiAssignorDialect(Dialect):
    """Reads the JoinGroup messages of the design."""

    def request(self, message: Message) -> JoinRequest | None:
        """Return the content of a JoinGroup request. Its metadata is that of all protocols."""
        assert isinstance(message, JoinGroupRequest), f"unexpected {message}"
        metadata = {each.name: bytes(each.metadata) for each in message.protocols}
        return JoinRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            session_timeout_ms=message.session_timeout,
            protocol_type=message.protocol_type,
            metadata=metadata,
        )

    def join_error(self, join: JoinRequest, others: list[JoinRequest]) -> ErrorCode:
        """Return the error of a request. All members need a common protocol of one type."""
        common = set(join.metadata).intersection(*(each.metadata for each in others))
        types = {each.protocol_type for each in (join, *others)}
        is_consistent = join.protocol_type and common and len(types) == 1
        return ErrorCode.NONE if is_consistent else ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def response(self, message: Message) -> JoinResponse:
        """Return the content of a JoinGroup response."""
        assert isinstance(message, JoinGroupResponse), f"unexpected {message}"
        assert not (message.members and message.compressed_members), "members are sent twice"
        members = {each.member_id: bytes(each.metadata) for each in group_members(message)}
        return JoinResponse(
            error=message.error_code,
            generation=message.generation_id,
            member_id=message.member_id,
            protocol=message.protocol_name,
            members=None if message.error_code else members,
        )
