"""Adapter of Heartbeat."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import Heartbeat
from partage.coordinator.replies import HeartbeatReply
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse


def to_events(call: ApiCall[HeartbeatRequest]) -> list[Heartbeat]:
    """Return one event. This is the hottest code of the bridge."""
    request = call.message
    return [
        Heartbeat(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
        )
    ]


def to_response(
    call: ApiCall[HeartbeatRequest], replies: list[HeartbeatReply]
) -> HeartbeatResponse:
    """Return a response with the error code."""
    return HeartbeatResponse(error_code=replies[0].error)


HEARTBEAT_ADAPTER = ApiAdapter(HEARTBEAT, to_events, to_response, is_error_only=True)
