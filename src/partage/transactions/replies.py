"""Replies to requests; the shell converts them to the client's API version."""

from __future__ import annotations

import msgspec

from partage.model.errors import ErrorCode
from partage.transactions.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    TransactionRequest,
    VerifyPartitions,
)
from partage.transactions.records import NO_EPOCH, NO_PRODUCER_ID, TransactionRecord


class ProducerReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to an InitProducer or EndTransaction: the id and epoch to use from now on."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class PartitionsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to an AddPartitions or VerifyPartitions: one error for each partition, in order."""

    errors: tuple[ErrorCode, ...]


class DescribeTransactionReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a DescribeTransaction; the record is None after an error."""

    error: ErrorCode = ErrorCode.NONE
    record: TransactionRecord | None = None


class ListTransactionsReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a ListTransactions; ``unlisted`` are the ids that were not examined."""

    error: ErrorCode = ErrorCode.NONE
    records: tuple[TransactionRecord, ...] = ()
    unlisted: tuple[str, ...] = ()


TransactionReply = (
    ProducerReply | PartitionsReply | DescribeTransactionReply | ListTransactionsReply
)


def error_reply(event: TransactionRequest, error: ErrorCode) -> TransactionReply:
    """Return the reply to any request that reports ``error``."""
    match event:
        case InitProducer() | EndTransaction():
            return ProducerReply(error=error)
        case AddPartitions() | VerifyPartitions():
            return PartitionsReply(errors=(error,) * len(event.partitions))
        case DescribeTransaction():
            return DescribeTransactionReply(error=error)
        case ListTransactions():
            return ListTransactionsReply(error=error)
    raise AssertionError(f"no reply for {type(event).__name__}")


def replace_with_error(reply: TransactionReply, error: ErrorCode) -> TransactionReply:
    """Return the reply of the same type with ``error``, for a reply that was not sent in time."""
    if isinstance(reply, PartitionsReply):
        return PartitionsReply(errors=(error,) * len(reply.errors))
    return type(reply)(error=error)
