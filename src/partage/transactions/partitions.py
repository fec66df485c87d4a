"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction."""

from __future__ import annotations

import msgspec

from partage.model.errors import ErrorCode
from partage.transactions.events import AddPartitions, VerifyPartitions
from partage.transactions.outcome import TransactionContext
from partage.transactions.replies import PartitionsReply
from partage.transactions.response_table import (
    RESPONSE_ERRORS,
    RESPONSES,
    TransactionCase,
    TransactionResponse,
)
from partage.transactions.states import PREPARED, TransactionState
from partage.transactions.transaction import Transaction


def add_partitions(
    context: TransactionContext, transaction: Transaction | None, event: AddPartitions
) -> None:
    """Add partitions to the transaction; the first ones begin it."""
    error = _validate(transaction, event) or ErrorCode.NONE
    if transaction is not None and not error:
        record = transaction.record
        response = RESPONSES[TransactionCase.ADD][record.state]
        error = RESPONSE_ERRORS.get(response, ErrorCode.NONE)
        begins = response is TransactionResponse.BEGIN
        new = [each for each in event.partitions if begins or each not in transaction.partitions]
        if not error and new:
            held = () if begins else record.partitions
            context.write(
                msgspec.structs.replace(
                    record,
                    previous_producer_id=record.producer_id,
                    state=TransactionState.ONGOING,
                    partitions=(*held, *dict.fromkeys(new)),
                    updated_ms=context.wall_ms,
                    started_ms=context.wall_ms if begins else record.started_ms,
                    version=event.version,
                )
            )
    context.reply(event.reply_to, PartitionsReply(errors=(error,) * len(event.partitions)))


def verify_partitions(
    context: TransactionContext, transaction: Transaction | None, event: VerifyPartitions
) -> None:
    """Check that partitions belong to the open transaction."""
    error = _validate(transaction, event) or ErrorCode.NONE
    if transaction is not None and not error:
        response = RESPONSES[TransactionCase.VERIFY][transaction.record.state]
        error = RESPONSE_ERRORS.get(response, ErrorCode.NONE)
        if not error:
            errors = tuple(
                ErrorCode.NONE if each in transaction.partitions else _NOT_ADDED
                for each in event.partitions
            )
            context.reply(event.reply_to, PartitionsReply(errors=errors))
            return
    context.reply(event.reply_to, PartitionsReply(errors=(error,) * len(event.partitions)))


_NOT_ADDED = ErrorCode.TRANSACTION_ABORTABLE


def _validate(
    transaction: Transaction | None, event: AddPartitions | VerifyPartitions
) -> ErrorCode | None:
    if not event.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if transaction is not None and transaction.record.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction is None or event.producer_id != transaction.record.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.epoch != transaction.record.epoch:
        return ErrorCode.PRODUCER_FENCED
    return None
