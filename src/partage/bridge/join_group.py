"""Adapter of JoinGroup."""

from __future__ import annotations

from typing import Final

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import Join, Protocol
from partage.coordinator.replies import JoinReply
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
)

#: The number of characters of the client id or instance id at the start of a new member id. The
#: limit keeps the id short enough for every place that stores it.
_MEMBER_ID_PREFIX_MAX: Final = 255


def to_events(call: ApiCall[JoinGroupRequest]) -> list[Join]:
    """Return one event; v4 and later rejoin with an id, v9 and later may skip the assignment."""
    request = call.message
    stem = call.client_id if request.group_instance_id is None else request.group_instance_id
    return [
        Join(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            member_id=request.member_id,
            generated_member_id=f"{stem[:_MEMBER_ID_PREFIX_MAX]}-{call.fresh_id}",
            instance_id=request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(
                Protocol(p.name, p.metadata, max(p.protocol_version, -1)) for p in request.protocols
            ),
            reason=request.reason,
            must_rejoin_with_id=call.version >= 4,
            may_skip_assignment=call.version >= 9,
        )
    ]


def to_response(call: ApiCall[JoinGroupRequest], replies: list[JoinReply]) -> JoinGroupResponse:
    """Return the response; before v7 an empty string stands for no protocol."""
    (reply,) = replies
    protocol_name = reply.protocol
    if protocol_name is None and call.version < 7:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )


JOIN_GROUP_ADAPTER = ApiAdapter(JOIN_GROUP, to_events, to_response)
