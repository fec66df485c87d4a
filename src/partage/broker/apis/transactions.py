"""DescribeProducers: the producers of a partition and their open transactions."""

from __future__ import annotations

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.model.errors import ErrorCode
from partage.wire.apis.describe_producers import (
    ActiveProducer,
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
)


def describe_producers(inbound: InboundRequest, log_manager: LogManager) -> None:
    """Respond with the producers that appended to each requested partition in the last day.

    A partition is described once, even if it is named often: a small request must not produce a
    huge response.
    """
    request: DescribeProducersRequest = inbound.message
    requested: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    inbound.respond(
        DescribeProducersResponse(
            topics=[
                DescribedProducersTopic(
                    name=name,
                    partitions=[_describe_partition(name, index, log_manager) for index in indexes],
                )
                for name, indexes in requested.items()
            ]
        )
    )


def _describe_partition(
    name: str, index: int, log_manager: LogManager
) -> DescribedProducersPartition:
    partition = log_manager.partition(name, index)
    if partition is None:
        return DescribedProducersPartition(
            partition_index=index,
            error_code=log_manager.missing_partition_error(name, index),
            active_producers=[],
        )
    if partition.error:
        return DescribedProducersPartition(
            partition_index=index, error_code=partition.error, active_producers=[]
        )
    return DescribedProducersPartition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ActiveProducer(
                producer_id=its.producer_id,
                producer_epoch=its.epoch,
                last_sequence=its.last_sequence,
                last_timestamp=its.seen_ms,
                coordinator_epoch=its.coordinator_epoch,
                current_txn_start_offset=its.transaction_start,
            )
            for its in partition.log.producer_state.summaries()
        ],
    )
