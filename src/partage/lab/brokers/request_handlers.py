"""Handlers of FindCoordinator, Produce and Fetch: minimal, on the production log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from partage.lab.brokers.log_maintenance import LogMaintenance
from partage.lab.brokers.server_connection import ServedRequest
from partage.lab.brokers.shell import BrokerShell
from partage.lab.brokers.storage import Storage
from partage.log.results import Refusal
from partage.log.segments.aborted_index import AbortedTransaction
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import (
    FetchAbortedTransaction,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
)
from partage.wire.apis.find_coordinator import (
    TRANSACTION,
    FindCoordinatorResponse,
    FindCoordinatorResult,
)
from partage.wire.apis.produce import (
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)

_FETCH_BYTES_MAX: Final = 4_000
_READ_COMMITTED: Final = 1


def handle_find_coordinator(
    coordinator: Callable[[str], int | None],
    transaction_coordinator: Callable[[str], int | None],
    request: Any,
) -> FindCoordinatorResponse:
    """Return the coordinator of each key, or COORDINATOR_NOT_AVAILABLE.

    Args:
        coordinator: Returns the broker id of a group's coordinator, or None if it is unknown.
        transaction_coordinator: Likewise for transactional ids.
        request: The request.
    """
    if request.key_type == TRANSACTION:
        coordinator = transaction_coordinator
    found = [_coordinator_result(key, coordinator(key)) for key in request.coordinator_keys]
    first = found[0] if found else _coordinator_result(request.key, coordinator(request.key))
    return FindCoordinatorResponse(
        node_id=first.node_id,
        host=first.host,
        port=first.port,
        error_code=first.error_code,
        coordinators=found,
    )


def _coordinator_result(key: str, broker_id: int | None) -> FindCoordinatorResult:
    if broker_id is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FindCoordinatorResult(key=key, node_id=-1, host="", port=-1, error_code=error)
    port = 9091 + broker_id
    return FindCoordinatorResult(key=key, node_id=broker_id, host="lab", port=port, error_code=0)


def handle_produce(
    broker: BrokerShell, maintenance: LogMaintenance, inbound: ServedRequest
) -> None:
    """Append one batch and respond when it is durable."""
    (topic,) = inbound.message.topic_data
    (asked,) = topic.partition_data
    assert broker.storage is not None
    partition = broker.storage.partitions[TopicPartition(topic.name, asked.index)]

    def answer(error: ErrorCode, base_offset: int = -1) -> None:
        inbound.respond(
            ProduceResponse(
                responses=[
                    ProduceTopicResult(
                        name=topic.name,
                        partition_responses=[
                            ProducePartitionResult(
                                index=asked.index, error_code=error, base_offset=base_offset
                            )
                        ],
                    )
                ]
            )
        )

    def done(error: ErrorCode) -> None:
        broker.when_awake(lambda: finish(error))

    def finish(error: ErrorCode) -> None:
        if broker.storage is None:
            return
        if error:
            maintenance.schedule_reopen(topic.name, asked.index)
            answer(error)
        else:
            assert not isinstance(appended, Refusal)
            answer(error, appended.base_offset)

    appended = partition.append(bytes(asked.records[0]), done, at_ms=broker.world.now_ms)
    if isinstance(appended, Refusal):
        answer(appended.code)


def handle_fetch(storage: Storage, request: Any) -> FetchResponse:
    """Return the durable batches from the requested offsets on."""
    return FetchResponse(
        responses=[
            FetchTopicResult(
                topic=topic.topic,
                partitions=[
                    _fetch_partition(storage, topic.topic, p, request.isolation_level)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch_partition(
    storage: Storage, topic: str, asked: Any, isolation_level: int
) -> FetchPartitionResult:
    partition = storage.partitions.get(TopicPartition(topic, asked.partition))
    error, content, high_watermark, last_stable_offset = ErrorCode.NONE, b"", -1, -1
    aborted: list[AbortedTransaction] | None = None
    if partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif partition.failure is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        high_watermark = partition.log.high_watermark
        last_stable_offset = partition.log.last_stable_offset
        if asked.fetch_offset > partition.log.end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif asked.fetch_offset < high_watermark:
            try:
                if isolation_level == _READ_COMMITTED:
                    bytes_max = asked.partition_max_bytes
                    content, aborted = storage.read_committed(
                        partition, asked.fetch_offset, bytes_max
                    )
                else:
                    content = b"".join(
                        storage.read(partition, asked.fetch_offset, _FETCH_BYTES_MAX)
                    )
            except OSError:
                error = ErrorCode.KAFKA_STORAGE_ERROR
    return FetchPartitionResult(
        partition_index=asked.partition,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        aborted_transactions=None
        if aborted is None
        else [
            FetchAbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in aborted
        ],
        records=[content],
    )
