"""Adapter of LeaveGroup."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import Leave, LeavingMember
from partage.coordinator.replies import LeaveReply
from partage.model.errors import ErrorCode
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupMemberResult,
    LeaveGroupRequest,
    LeaveGroupResponse,
)


def to_events(call: ApiCall[LeaveGroupRequest]) -> list[Leave]:
    """Return one event for all members; before v3 a request names one."""
    request = call.message
    members = request.members
    if call.version < 3:
        members = [LeaveGroupMember(member_id=request.member_id)]
    return [
        Leave(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            members=tuple(
                LeavingMember(
                    member_id=m.member_id, instance_id=m.group_instance_id, reason=m.reason
                )
                for m in members
            ),
        )
    ]


def to_response(call: ApiCall[LeaveGroupRequest], replies: list[LeaveReply]) -> LeaveGroupResponse:
    """Return the response with an error for each member; before v3 it has a single one."""
    (reply,) = replies
    if reply.error:
        return LeaveGroupResponse(error_code=reply.error)
    if call.version < 3:
        return LeaveGroupResponse(error_code=reply.errors[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupMemberResult(
                member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error
            )
            for m, error in zip(call.message.members, reply.errors, strict=True)
        ],
    )


LEAVE_GROUP_ADAPTER = ApiAdapter(LEAVE_GROUP, to_events, to_response)
