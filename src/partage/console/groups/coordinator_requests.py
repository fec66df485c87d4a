"""Requests that change a group, sent to its coordinator by Partage's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError
from partage.client.group.coordinator_lookup import find_coordinators
from partage.console.common.client_requests import run_client
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.coordinated_groups import RETRIABLE
from partage.console.groups.describe import missing_groups_error
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.api import Api
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from partage.wire.types import Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


def commit_offsets(
    cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int], doubt: str
) -> dict[TopicPartition, int]:
    """Commit offsets of a group without members. Return the error code of each partition.

    Args:
        cluster: Cluster of the group.
        group: Group; it is created if it does not exist.
        offsets: New offsets.
        doubt: Advice for a request without a response, which may have taken effect.

    Raises:
        CommandError: The coordinator does not respond.
    """
    return run_client(cluster, lambda client: commit_offsets_once(client, group, offsets), doubt)


async def commit_offsets_once(
    client: Cluster, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit offsets in one attempt. Return the error code of each partition.

    Raises:
        ClientError: The coordinator does not respond, moves or loads.
    """
    by_topic: dict[str, list[OffsetCommitPartition]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitTopic(name=name, partitions=of) for name, of in by_topic.items()],
    )
    response = await _send_once(client, group, OFFSET_COMMIT, request)
    codes = {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
    for code in codes.values():
        if code in RETRIABLE:
            raise BrokerResponseError(code, f"group {group!r}")
    return {each: codes.get(each, int(ErrorCode.UNKNOWN_SERVER_ERROR)) for each in offsets}


def delete_offsets(
    cluster: ClusterClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete committed offsets of a group (KIP-496). Return the error code of each partition.

    Raises:
        CommandError: The coordinator does not respond, or rejects the whole request.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteTopic(
                name=topic,
                partitions=[OffsetDeletePartition(partition_index=each) for each in numbers],
            )
            for topic, numbers in by_topic.items()
        ],
    )
    answer = _send(cluster, group, OFFSET_DELETE, request)
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def remove_members(
    cluster: ClusterClient, group: str, members: Sequence[LeaveGroupMember]
) -> list[int]:
    """Remove members from a group (KIP-345). Return the error code of each member.

    Raises:
        CommandError: The coordinator does not respond, or rejects the whole request.
    """
    first, *others = members
    request = LeaveGroupRequest(group_id=group, member_id=first.member_id, members=list(members))
    answer = _send(cluster, group, LEAVE_GROUP, request)
    if answer.members:
        return [each.error_code for each in answer.members]
    # Up to v2, a request names one member, and its error raises here.
    for each in others:
        _send(
            cluster,
            group,
            LEAVE_GROUP,
            LeaveGroupRequest(group_id=group, member_id=each.member_id, members=[each]),
        )
    return [ErrorCode.NONE] * len(members)


def _send(cluster: ClusterClient, group: str, api: Api[Req, Res], request: Req) -> Res:
    """Send a request to the coordinator of a group; retry while it moves or loads."""

    async def attempt(client: Cluster) -> Res:
        response = await _send_once(client, group, api, request)
        code: int = getattr(response, "error_code", 0)
        if code in RETRIABLE:
            raise BrokerResponseError(code, f"group {group!r}")
        return response

    response = run_client(cluster, attempt)
    code: int = getattr(response, "error_code", 0)
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise missing_groups_error(cluster, [group])
    if code:
        raise CommandError(str(BrokerResponseError(code, f"group {group!r}")))
    return response


async def _send_once(client: Cluster, group: str, api: Api[Req, Res], request: Req) -> Res:
    found = await find_coordinators(await client.any_broker(), [group])
    coordinator = found[group]
    if isinstance(coordinator, BrokerResponseError):
        raise coordinator
    return await (await client.connect_to(coordinator)).send(api, request)
