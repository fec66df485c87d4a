"""OffsetDelete."""

from __future__ import annotations

from partage.bridge.exchange import Call, Exchange
from partage.coordinator.events import DeleteOffsets
from partage.coordinator.replies import DeleteOffsetsReply
from partage.model.errors import ErrorCode
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResult,
)


def ask(call: Call[OffsetDeleteRequest]) -> list[DeleteOffsets]:
    """One event for all partitions."""
    return [
        DeleteOffsets(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=call.message.group_id,
            partitions=tuple(
                (topic.name, p.partition_index)
                for topic in call.message.topics
                for p in topic.partitions
            ),
        )
    ]


def answer(
    call: Call[OffsetDeleteRequest], replies: list[DeleteOffsetsReply]
) -> OffsetDeleteResponse:
    """An error of the group, or one for each partition; unknown partitions say so."""
    (reply,) = replies
    if reply.error:
        return OffsetDeleteResponse(error_code=reply.error, topics=[])
    errors = iter(reply.errors)
    has_partition = call.surroundings.has_partition
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
    """Offsets of a topic that is gone go too, but the client learns that it is gone."""
    return error if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


OFFSET_DELETE_EXCHANGE = Exchange(OFFSET_DELETE, ask, answer)
