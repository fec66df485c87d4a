"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import asyncio
from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.model.errors import ErrorCode
from partage.statemachine.linear_pattern import LinearPattern
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import DescribeTransactionReply
from partage.transactions.states import KAFKA_INTERNAL_STATES, TransactionState
from partage.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from partage.wire.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_IDS_PER_TURN: Final = 256
_STATES: Final = frozenset({*TransactionState, *KAFKA_INTERNAL_STATES})


async def list_transactions(inbound: InboundRequest, coordinator: TransactionCoordinator) -> None:
    """Respond with the transactional ids, and the requested states that do not exist."""
    request: ListTransactionsRequest = inbound.message
    unknown = [state for state in request.state_filters if state not in _STATES]
    records: tuple[TransactionRecord, ...] = ()
    error = ErrorCode.NONE
    try:
        pattern = _pattern(request.transactional_id_pattern)
    except ValueError:
        error = ErrorCode.INVALID_REGULAR_EXPRESSION
    else:
        reply = await coordinator.list_transactions(
            frozenset(request.state_filters),
            frozenset(request.producer_id_filters),
            request.duration_filter,
            pattern,
        )
        error, records = reply.error, reply.records
    inbound.respond(
        ListTransactionsResponse(
            error_code=error,
            unknown_state_filters=list(dict.fromkeys(unknown)),
            transaction_states=[
                ListedTransaction(
                    transactional_id=record.transactional_id,
                    producer_id=record.producer_id,
                    transaction_state=record.state,
                )
                for record in records
            ],
        )
    )


def _pattern(text: str | None) -> LinearPattern | None:
    """Return the pattern of transactional ids; an empty one passes everything.

    Raises:
        ValueError: it is invalid.
    """
    return LinearPattern(text) if text else None


async def describe_transactions(
    inbound: InboundRequest, coordinator: TransactionCoordinator
) -> None:
    """Respond with the state of each transactional id; each is described once."""
    request: DescribeTransactionsRequest = inbound.message
    described = []
    for number, transactional_id in enumerate(dict.fromkeys(request.transactional_ids), 1):
        described.append(_describe(transactional_id, await coordinator.describe(transactional_id)))
        if not number % _IDS_PER_TURN:
            await asyncio.sleep(0)  # a request can name millions of ids
    inbound.respond(DescribeTransactionsResponse(transaction_states=described))


def _describe(transactional_id: str, reply: DescribeTransactionReply) -> DescribedTransaction:
    record = reply.record
    if record is None:
        return DescribedTransaction(
            error_code=reply.error,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in record.partitions:
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=record.state,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.started_ms,
        producer_id=record.producer_id,
        producer_epoch=record.epoch,
        topics=[
            DescribedTransactionTopic(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
