"""Adapter of DeleteGroups."""

from __future__ import annotations

from partage.bridge.exchange import Call, Exchange
from partage.coordinator.events import DeleteGroup
from partage.coordinator.replies import DeleteReply
from partage.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResult,
)


def ask(call: Call[DeleteGroupsRequest]) -> list[DeleteGroup]:
    """Return one event for each distinct group."""
    call.kept = list(dict.fromkeys(call.message.groups_names))
    return [
        DeleteGroup(at_ms=call.at_ms, reply_to=call.part(index), group_id=group_id)
        for index, group_id in enumerate(call.kept)
    ]


def answer(call: Call[DeleteGroupsRequest], replies: list[DeleteReply]) -> DeleteGroupsResponse:
    """Return one result for each distinct group, in the order of the request."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResult(group_id=group_id, error_code=reply.error)
            for group_id, reply in zip(call.kept, replies, strict=True)
        ]
    )


DELETE_GROUPS_EXCHANGE = Exchange(DELETE_GROUPS, ask, answer)
