"""Adapter of DescribeGroups."""

from __future__ import annotations

from typing import Final

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import DescribeGroup
from partage.coordinator.replies import DescribeGroupReply
from partage.model.errors import ErrorCode
from partage.wire.apis.common import GROUP_OPERATIONS, OPERATIONS_OMITTED
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_SHOWN_MAX: Final = 249  # characters of a group id that an error message repeats


def to_events(call: ApiCall[DescribeGroupsRequest]) -> list[DescribeGroup]:
    """Return one event for each distinct group.

    Duplicates are dropped, because a description can be much larger than the id in the request.
    Clients from v6 on understand GROUP_ID_NOT_FOUND (KIP-1043).
    """
    return [
        DescribeGroup(
            at_ms=call.at_ms,
            reply_to=call.sub_ticket(index),
            group_id=group_id,
            knows_group_not_found=call.version >= 6,
        )
        for index, group_id in enumerate(dict.fromkeys(call.message.groups))
    ]


def to_response(
    call: ApiCall[DescribeGroupsRequest], replies: list[DescribeGroupReply]
) -> DescribeGroupsResponse:
    """Return one entry for each distinct group, in the order of the request."""
    is_included = call.message.include_authorized_operations
    operations = GROUP_OPERATIONS if is_included else OPERATIONS_OMITTED
    return DescribeGroupsResponse(groups=[_group(reply, operations) for reply in replies])


def _group(reply: DescribeGroupReply, operations: int) -> DescribedGroup:
    is_missing = reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    message = reply.error_message
    if is_missing and message is None:
        message = f"Group {reply.group_id[:_SHOWN_MAX]} not found."
    return DescribedGroup(
        error_code=reply.error,
        error_message=message,
        group_id=reply.group_id,
        group_state=reply.state if is_missing or not reply.error else "",
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
        authorized_operations=OPERATIONS_OMITTED if reply.error else operations,
    )


DESCRIBE_GROUPS_ADAPTER = ApiAdapter(DESCRIBE_GROUPS, to_events, to_response)
