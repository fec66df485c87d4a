"""Adapter of ListGroups."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import ListGroups
from partage.coordinator.replies import ListGroupsReply
from partage.model.errors import ErrorCode
from partage.wire.apis.list_groups import (
    LIST_GROUPS,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def to_events(call: ApiCall[ListGroupsRequest]) -> list[ListGroups]:
    """Return the same event for every shard, in the order of the shards."""
    states = frozenset(state.lower() for state in call.message.states_filter)
    types = frozenset(kind.lower() for kind in call.message.types_filter)
    return [
        ListGroups(at_ms=call.at_ms, reply_to=call.sub_ticket(index), states=states, types=types)
        for index in range(call.broker.shard_count)
    ]


def to_response(
    call: ApiCall[ListGroupsRequest], replies: list[ListGroupsReply]
) -> ListGroupsResponse:
    """Return the groups of all shards. Shards of other brokers are skipped; a loading one is an
    error.
    """
    errors = [
        r.error for r in replies if r.error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    ]
    return ListGroupsResponse(
        error_code=errors[0] if errors else ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for reply in replies
            for group in reply.groups
        ]
        if not errors
        else [],
    )


LIST_GROUPS_ADAPTER = ApiAdapter(LIST_GROUPS, to_events, to_response)
