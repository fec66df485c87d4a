"""Adapter of OffsetDelete."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.coordinator.events import DeleteOffsets
from partage.coordinator.replies import DeleteOffsetsReply
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResult,
)


def to_events(call: ApiCall[OffsetDeleteRequest]) -> list[DeleteOffsets]:
    """Return one event for all partitions."""
    return [
        DeleteOffsets(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=call.message.group_id,
            partitions=tuple(
                TopicPartition(topic.name, p.partition_index)
                for topic in call.message.topics
                for p in topic.partitions
            ),
        )
    ]


def to_response(
    call: ApiCall[OffsetDeleteRequest], replies: list[DeleteOffsetsReply]
) -> OffsetDeleteResponse:
    """Return the group's error, or one error for each partition."""
    (reply,) = replies
    if reply.error:
        return OffsetDeleteResponse(error_code=reply.error, topics=[])
    errors = iter(reply.errors)
    has_partition = call.broker.has_partition
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteTopicResult(
                name=topic.name,
                partitions=[
                    OffsetDeletePartitionResult(
                        partition_index=p.partition_index,
                        error_code=_error(
                            next(errors), known=has_partition(topic.name, p.partition_index)
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in call.message.topics
        ],
    )


def _error(error: ErrorCode, *, known: bool) -> ErrorCode:
    """Return the error of a partition. Offsets of a deleted topic are removed, but the client gets
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    return error if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


OFFSET_DELETE_ADAPTER = ApiAdapter(OFFSET_DELETE, to_events, to_response)
