"""What a request is answered with; the bridge gives it the shape of the client's version."""

from __future__ import annotations

import msgspec

from partage.coordinator.records import OffsetCommitted
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode


class JoinedMember(msgspec.Struct, frozen=True, gc=False):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a Join; ``members`` is for the leader alone."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a Sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    assignment_error: str | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """To a Heartbeat."""

    error: ErrorCode


class LeaveReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a Leave: an error for all, or one for each leaver in their order."""

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


class CommitReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a Commit: one error for each offset, in their order."""

    errors: tuple[ErrorCode, ...]


class OffsetsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a FetchOffsets: what is committed; None for a partition of which nothing is."""

    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[OffsetCommitted | None, ...] = ()


class DescribedMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as DescribeGroups shows it; metadata only while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a Describe."""

    error: ErrorCode = ErrorCode.NONE
    group_id: str
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group as ListGroups shows it; all of ours are of type "classic"."""

    group_id: str
    protocol_type: str
    state: GroupState


class ListReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


class DeleteReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a DeleteGroup."""

    error: ErrorCode


class DeleteOffsetsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """To a DeleteOffsets: an error for all, or one for each partition in their order."""

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | OffsetsReply
    | DescribeReply
    | ListReply
    | DeleteReply
    | DeleteOffsetsReply
)
