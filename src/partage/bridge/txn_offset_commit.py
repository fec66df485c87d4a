"""Adapter of TxnOffsetCommit."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.bridge.offset_commit import existing_offsets
from partage.coordinator.events import TransactionalCommit
from partage.coordinator.replies import CommitReply
from partage.model.errors import ErrorCode
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartitionResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResult,
)


def to_events(call: ApiCall[TxnOffsetCommitRequest]) -> list[TransactionalCommit]:
    """Return one event for the existing partitions; `to_response` rejects the others."""
    request = call.message
    offsets = existing_offsets(call)
    if not offsets:
        return []
    return [
        TransactionalCommit(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
        )
    ]


def to_response(
    call: ApiCall[TxnOffsetCommitRequest], replies: list[CommitReply]
) -> TxnOffsetCommitResponse:
    """Return an error for each partition, in the order of the request.

    Producers of Kafka before 2.0 fail at COORDINATOR_LOAD_IN_PROGRESS, so before v2 they get an
    error that they retry (KAFKA-7296). Only v6 has STALE_MEMBER_EPOCH (KIP-1319).
    """
    errors = iter(replies[0].errors if replies else ())
    known = iter(call.prepared)
    shown = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
    if call.version < 2:
        shown[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def result(index: int) -> TxnOffsetCommitPartitionResult:
        error = next(errors) if next(known) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TxnOffsetCommitPartitionResult(
            partition_index=index, error_code=shown.get(error, error)
        )

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitTopicResult(
                name=topic.name,
                partitions=[result(p.partition_index) for p in topic.partitions],
            )
            for topic in call.message.topics
        ]
    )


TXN_OFFSET_COMMIT_ADAPTER = ApiAdapter(TXN_OFFSET_COMMIT, to_events, to_response)
