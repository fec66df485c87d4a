"""Replies to requests of a shard that is loading, failed, or owned by another broker."""

from __future__ import annotations

from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    RepeatedHeartbeat,
)
from partage.coordinator.consumer_group.replies import (
    ConsumerGroupHeartbeatReply,
    DescribeConsumerGroupReply,
)
from partage.coordinator.events import (
    Commit,
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Request,
    Sync,
    TransactionalCommit,
)
from partage.coordinator.replies import (
    CommitReply,
    CompleteTransactionReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    DescribeGroupReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListGroupsReply,
    Reply,
    SyncReply,
)
from partage.model.errors import ErrorCode


def error_reply(event: Request, error: ErrorCode) -> Reply:
    """Return the reply to any request that reports ``error``.

    While the shard is loading, a heartbeat succeeds, as in Kafka. All sessions restart after
    loading, and an error would only make the member look for the coordinator.
    """
    match event:
        case Heartbeat() if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatReply(ErrorCode.NONE)
        case Heartbeat():
            return HeartbeatReply(error)
        case Join():
            return JoinReply(error=error, member_id=event.member_id)
        case Sync():
            return SyncReply(error=error)
        case Leave():
            return LeaveReply(error=error)
        case CompleteTransaction():
            return CompleteTransactionReply(error=error)
        case Commit() | TransactionalCommit():
            return CommitReply(errors=(error,) * len(event.offsets))
        case FetchOffsets() if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Consumers of Kafka before 3.9 fail at COORDINATOR_NOT_AVAILABLE here, but retry this
            # error.
            return FetchOffsetsReply(error=ErrorCode.NOT_COORDINATOR)
        case FetchOffsets():
            return FetchOffsetsReply(error=error)
        case DescribeGroup():
            return DescribeGroupReply(error=error, group_id=event.group_id)
        case ListGroups():
            return ListGroupsReply(error=error)
        case DeleteGroup():
            return DeleteGroupReply(error=error)
        case DeleteOffsets():
            return DeleteOffsetsReply(error=error)
        case ConsumerGroupHeartbeat() | RepeatedHeartbeat():
            return ConsumerGroupHeartbeatReply(error=error)
        case DescribeConsumerGroup():
            return DescribeConsumerGroupReply(error=error, group_id=event.group_id)
    raise AssertionError(f"no reply for {type(event).__name__}")


def replace_with_error(reply: Reply, error: ErrorCode) -> Reply:
    """Return the reply of the same type with ``error``, for a reply that was not sent in time."""
    match reply:
        case JoinReply():
            return JoinReply(error=error, member_id=reply.member_id)
        case CommitReply():
            return CommitReply(errors=(error,) * len(reply.errors))
        case DescribeGroupReply():
            return DescribeGroupReply(error=error, group_id=reply.group_id)
        case DescribeConsumerGroupReply():
            return DescribeConsumerGroupReply(error=error, group_id=reply.group_id)
        case HeartbeatReply() | DeleteGroupReply():
            return type(reply)(error=error)
        case (
            SyncReply()
            | LeaveReply()
            | FetchOffsetsReply()
            | ListGroupsReply()
            | DeleteOffsetsReply()
            | CompleteTransactionReply()
            | ConsumerGroupHeartbeatReply()
        ):
            return type(reply)(error=error)
