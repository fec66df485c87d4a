"""Adapter of DeleteGroups."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import DeleteGroup
from partage.coordinator.replies import DeleteGroupReply
from partage.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResult,
)


def to_events(call: ApiCall[DeleteGroupsRequest]) -> list[DeleteGroup]:
    """Return one event for each distinct group."""
    call.prepared = list(dict.fromkeys(call.message.groups_names))
    return [
        DeleteGroup(at_ms=call.at_ms, reply_to=call.sub_ticket(index), group_id=group_id)
        for index, group_id in enumerate(call.prepared)
    ]


def to_response(
    call: ApiCall[DeleteGroupsRequest], replies: list[DeleteGroupReply]
) -> DeleteGroupsResponse:
    """Return one result for each distinct group, in the order of the request."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResult(group_id=group_id, error_code=reply.error)
            for group_id, reply in zip(call.prepared, replies, strict=True)
        ]
    )


DELETE_GROUPS_ADAPTER = ApiAdapter(DELETE_GROUPS, to_events, to_response)
