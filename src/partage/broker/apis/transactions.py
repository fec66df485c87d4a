"""DescribeProducers and ListTransactions: idempotent producers, but no transactions."""

from __future__ import annotations

from typing import Final

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
from partage.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse

#: Kafka's states of a transaction.
_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def list_transactions(inbound: InboundRequest) -> None:
    """Respond with an empty list, and the requested states that do not exist."""
    request: ListTransactionsRequest = inbound.message
    unknown = [state for state in request.state_filters if state not in _STATES]
    inbound.respond(
        ListTransactionsResponse(
            error_code=ErrorCode.NONE,
            unknown_state_filters=list(dict.fromkeys(unknown)),
            transaction_states=[],
        )
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
