"""Group requests that tests send often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partage.model.errors import ErrorCode
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
)
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest

from .raw_client import RawClient


def join_request(group: str, member_id: str = "", **options: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        **{
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "test",
            "protocols": [JoinGroupProtocol(name="p", metadata=b"m")],
        }
        | options,
    )


def join(raw: RawClient, group: str, member_id: str = "", **options: Any) -> JoinGroupResponse:
    """Join as the only member, with the generated id in a second request; no rebalance may be
    running.
    """
    answer = raw.request(JOIN_GROUP, join_request(group, member_id, **options))
    if answer.error_code == 79:
        answer = raw.request(JOIN_GROUP, join_request(group, answer.member_id, **options))
    assert answer.error_code == 0, answer.error_code
    return answer


def sync(
    raw: RawClient, group: str, joined: JoinGroupResponse, assignments: Mapping[str, bytes]
) -> bytes:
    answer = raw.request(SYNC_GROUP, sync_request(group, joined, assignments))
    assert answer.error_code == 0, answer.error_code
    return answer.assignment


def sync_request(
    group: str, joined: JoinGroupResponse, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def join_and_sync(raw: RawClient, group: str, **options: Any) -> JoinGroupResponse:
    """Form a group of one member with an assignment."""
    joined = join(raw, group, **options)
    assert sync(raw, group, joined, {joined.member_id: b"all"}) == b"all"
    return joined


def heartbeat(raw: RawClient, group: str, joined: JoinGroupResponse) -> int:
    """Send a heartbeat; return its error code."""
    return raw.request(HEARTBEAT, heartbeat_request(group, joined)).error_code


def heartbeat_request(group: str, joined: JoinGroupResponse) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )


def leave(raw: RawClient, group: str, member_id: str) -> int:
    request = LeaveGroupRequest(group_id=group, members=[LeaveGroupMember(member_id=member_id)])
    (member,) = raw.request(LEAVE_GROUP, request).members
    return member.error_code


def commit_request(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    joined: JoinGroupResponse | None = None,
    metadata: str = "",
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if joined is None else joined.generation_id,
        member_id="" if joined is None else joined.member_id,
        topics=[
            OffsetCommitTopic(
                name=topic,
                partitions=[
                    OffsetCommitPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
    )


def commit_errors(response: Any) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


def commit(raw: RawClient, group: str, topic: str, offset: int, **options: Any) -> int:
    """Commit an offset of partition 0; return the error code."""
    response = raw.request(OFFSET_COMMIT, commit_request(group, topic, {0: offset}, **options))
    (error,) = commit_errors(response)
    return error


def fetch_offsets(
    raw: RawClient, group: str, asked: Mapping[str, Sequence[int]] | None = None
) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group: of all partitions, or of the given ones (-1 for
    none).
    """
    topics = (
        None
        if asked is None
        else [OffsetFetchTopic(name=name, partition_indexes=list(p)) for name, p in asked.items()]
    )
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=group, topics=topics)])
    (result,) = raw.request(OFFSET_FETCH, request).groups
    assert result.error_code == 0, result.error_code
    return {
        (topic.name, p.partition_index): p.committed_offset
        for topic in result.topics
        for p in topic.partitions
    }


def describe_group(raw: RawClient, group: str) -> DescribedGroup:
    (answer,) = raw.request(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])).groups
    return answer


def describe_when_loaded(raw: RawClient, group: str) -> DescribedGroup:
    """Describe the group once its coordinator has loaded it after a start."""
    while (
        found := describe_group(raw, group)
    ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    return found
