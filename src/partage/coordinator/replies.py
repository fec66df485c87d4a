"""Replies to requests; the bridge converts them to the client's API version."""

from __future__ import annotations

import msgspec

from partage.coordinator.consumer_group.replies import (
    ConsumerGroupHeartbeatReply,
    DescribeConsumerGroupReply,
)
from partage.coordinator.records import OffsetRecord
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition


class JoinedMember(msgspec.Struct, frozen=True, gc=False):
    """A member as the leader sees it in its JoinGroup reply."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a Join. ``members`` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a Sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    assignment_error: str | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """Reply to a Heartbeat."""

    error: ErrorCode


class LeaveReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a Leave: one error for the whole request, or one for each member in order."""

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


class CommitReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a Commit: one error for each offset, in order."""

    errors: tuple[ErrorCode, ...]


class CompleteTransactionReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a CompleteTransaction."""

    error: ErrorCode = ErrorCode.NONE


class FetchOffsetsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a FetchOffsets. An offset is None for a partition without a committed offset.

    ``unstable`` are the requested partitions with pending offsets, if the request required stable
    ones.
    """

    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[OffsetRecord | None, ...] = ()
    unstable: frozenset[TopicPartition] = frozenset()


class DescribedMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as DescribeGroups shows it; metadata only while the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a DescribeGroup."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_id: str
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class GroupOverview(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group as ListGroups shows it. ``type`` is "classic" or "consumer"."""

    group_id: str
    protocol_type: str
    state: str
    type: str = "classic"


class ListGroupsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[GroupOverview, ...] = ()


class DeleteGroupReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a DeleteGroup."""

    error: ErrorCode


class DeleteOffsetsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a DeleteOffsets: one error for the whole request, or one for each partition in
    order.
    """

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | CompleteTransactionReply
    | FetchOffsetsReply
    | DescribeGroupReply
    | ListGroupsReply
    | DeleteGroupReply
    | DeleteOffsetsReply
    | ConsumerGroupHeartbeatReply
    | DescribeConsumerGroupReply
)
