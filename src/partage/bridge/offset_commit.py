"""Adapter of OffsetCommit."""

from __future__ import annotations

from typing import Any, Final

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.bridge.topic_ids import has_topic_ids, set_topic_names
from partage.coordinator.events import Commit, OffsetToCommit
from partage.coordinator.replies import CommitReply
from partage.model.errors import ErrorCode
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)

_RETENTION_MAX_MS: Final = 1 << 62


def to_events(call: ApiCall[OffsetCommitRequest]) -> list[Commit]:
    """Return one event for the existing partitions; `to_response` rejects the others."""
    request = call.message
    set_topic_names(call, request.topics)
    offsets = existing_offsets(call)
    if request.topics and not offsets:
        return []
    return [
        Commit(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
            retention_ms=_retention_ms(request.retention_time_ms),
            knows_group_not_found=call.version >= 9,
        )
    ]


def existing_offsets(call: ApiCall[Any]) -> tuple[OffsetToCommit, ...]:
    """Return the offsets of existing partitions, and prepare the call for its response.

    ``call`` is an OffsetCommit or a TxnOffsetCommit, whose topics have the same fields.
    """
    request = call.message
    has_partition = call.broker.has_partition
    offsets = []
    known = call.prepared = []  # for each partition True if it exists, in the order of the request
    for topic in request.topics:
        name = topic.name
        for p in topic.partitions:
            is_there = has_partition(name, p.partition_index)
            known.append(is_there)
            if is_there:
                offsets.append(
                    OffsetToCommit(
                        topic=name,
                        partition=p.partition_index,
                        offset=p.committed_offset,
                        leader_epoch=p.committed_leader_epoch,
                        metadata=p.committed_metadata or "",
                    )
                )
    return tuple(offsets)


def _retention_ms(asked_ms: int) -> int | None:
    """Return a retention that is safe to add to a time; None for the broker's retention."""
    return min(asked_ms, _RETENTION_MAX_MS) if asked_ms >= 0 else None


def to_response(
    call: ApiCall[OffsetCommitRequest], replies: list[CommitReply]
) -> OffsetCommitResponse:
    """Return an error for each partition, in the order of the request."""
    errors = iter(replies[0].errors if replies else ())
    known = iter(call.prepared)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing_topic = ErrorCode.UNKNOWN_TOPIC_ID if has_topic_ids(call) else missing
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitPartitionResult(
                        partition_index=p.partition_index,
                        error_code=next(errors)
                        if next(known)
                        else missing
                        if topic.name
                        else missing_topic,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in call.message.topics
        ]
    )


OFFSET_COMMIT_ADAPTER = ApiAdapter(OFFSET_COMMIT, to_events, to_response)
