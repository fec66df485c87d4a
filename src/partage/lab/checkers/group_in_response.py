"""Tells which responses only the coordinator of a group can send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from partage.model.errors import ErrorCode
from partage.wire.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from partage.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from partage.wire.apis.delete_groups import DeleteGroupsResponse
from partage.wire.apis.describe_groups import DescribeGroupsResponse
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.leave_group import LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.offset_delete import OffsetDeleteResponse
from partage.wire.apis.offset_fetch import OffsetFetchResponse
from partage.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitResponse

#: The first version of OffsetFetch that names groups.
_WITH_GROUPS: Final = 8
_NOT_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
#: Errors that only a coordinator can know; other errors concern the request itself.
_COORDINATOR_ONLY: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)


def group_in_response(request: Any, version: int, response: Any) -> str | None:
    """Return the group about which a response says something that only its coordinator knows.

    Args:
        request: the request.
        version: its version.
        response: the response.

    Returns:
        The group id, the first of several; None if any broker may send this response.
    """
    group_id = _group(request, version, response)
    if group_id is None or _lacks_protocol(request, version):
        return None
    codes = set(_codes(response))
    return group_id if codes & _COORDINATOR_ONLY and not codes & _NOT_COORDINATOR else None


def _lacks_protocol(request: Any, version: int) -> bool:
    """Return True if any broker rejects the SyncGroup, with INCONSISTENT_GROUP_PROTOCOL.

    From version 5 on, it must have a protocol type and name. Kafka checks this before it asks the
    coordinator (KafkaApis).
    """
    if not isinstance(request, SyncGroupRequest) or version < 5:
        return False
    return request.protocol_type is None or request.protocol_name is None


def _group(request: Any, version: int, response: Any) -> str | None:
    """Return the group id of a response, the first of several; None if it has none."""
    match response:
        case (
            HeartbeatResponse()
            | JoinGroupResponse()
            | SyncGroupResponse()
            | LeaveGroupResponse()
            | OffsetCommitResponse()
            | OffsetDeleteResponse()
            | TxnOffsetCommitResponse()
            | ConsumerGroupHeartbeatResponse()
        ):
            return str(request.group_id)
        case (
            OffsetFetchResponse(groups=[group])
            | DescribeGroupsResponse(groups=[group, *_])
            | ConsumerGroupDescribeResponse(groups=[group, *_])
            | DeleteGroupsResponse(results=[group, *_])
        ):
            return str(group.group_id)
        case OffsetFetchResponse(groups=[]) if version < _WITH_GROUPS:
            return str(request.group_id)
    return None


def _codes(response: Any) -> Iterator[int]:
    """Yield all error codes of a response. Their location depends on the API version."""
    groups = getattr(response, "groups", ()) or getattr(response, "results", ())
    for one in (response, *groups[:1]):
        if hasattr(one, "error_code"):
            yield one.error_code
        for topic in getattr(one, "topics", ()):
            for each in topic.partitions:
                yield each.error_code
