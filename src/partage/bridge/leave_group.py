"""LeaveGroup."""

from __future__ import annotations

from partage.bridge.exchange import Call, Exchange
from partage.coordinator.events import Leave, Leaver
from partage.coordinator.replies import LeaveReply
from partage.model.errors import ErrorCode
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupMemberResult,
    LeaveGroupRequest,
    LeaveGroupResponse,
)


def ask(call: Call[LeaveGroupRequest]) -> list[Leave]:
    """One event for all who leave; before v3 that is one."""
    leavers = tuple(
        Leaver(member_id=m.member_id, instance_id=m.group_instance_id, reason=m.reason)
        for m in _members(call)
    )
    return [
        Leave(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=call.message.group_id,
            leavers=leavers,
        )
    ]


def _members(call: Call[LeaveGroupRequest]) -> list[LeaveGroupMember]:
    if call.version >= 3:
        return call.message.members
    return [LeaveGroupMember(member_id=call.message.member_id)]


#: Errors that speak of the group or its coordinator, not of one member.
_OF_THE_GROUP = {
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def answer(call: Call[LeaveGroupRequest], replies: list[LeaveReply]) -> LeaveGroupResponse:
    """An error for each member, or one for all."""
    errors = replies[0].errors
    first = errors[0] if errors else ErrorCode.NONE
    if call.version < 3 or first in _OF_THE_GROUP:
        return LeaveGroupResponse(error_code=first)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupMemberResult(
                member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error
            )
            for m, error in zip(_members(call), errors, strict=True)
        ],
    )


LEAVE_GROUP_EXCHANGE = Exchange(LEAVE_GROUP, ask, answer)
