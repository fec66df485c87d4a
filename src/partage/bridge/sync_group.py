"""Adapter of SyncGroup."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import Sync
from partage.coordinator.replies import SyncReply
from partage.model.errors import ErrorCode
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse


def to_events(call: ApiCall[SyncGroupRequest]) -> list[Sync]:
    """Return one event; none if a v5 client does not name its protocol, which is an error
    (KIP-559).
    """
    request = call.message
    if call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return []
    return [
        Sync(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={a.member_id: a.assignment for a in request.assignments},
            assignment_error=request.assignment_error,
        )
    ]


def to_response(call: ApiCall[SyncGroupRequest], replies: list[SyncReply]) -> SyncGroupResponse:
    """Return the response with the member's assignment."""
    unnamed = SyncReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    reply = replies[0] if replies else unnamed
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
        assignment_error=reply.assignment_error,
    )


SYNC_GROUP_ADAPTER = ApiAdapter(SYNC_GROUP, to_events, to_response)
