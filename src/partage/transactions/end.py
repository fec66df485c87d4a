"""EndTxn, the abort of another producer's transaction, and the markers that complete both."""

from __future__ import annotations

import msgspec

from partage.model.errors import ErrorCode
from partage.transactions.events import VERSION_2, EndTransaction, MarkersWritten
from partage.transactions.outcome import MarkersToWrite, TransactionContext
from partage.transactions.records import NO_PRODUCER_ID, TransactionRecord
from partage.transactions.replies import ProducerReply
from partage.transactions.response_table import (
    RESPONSE_ERRORS,
    RESPONSES,
    TransactionCase,
    TransactionResponse,
)
from partage.transactions.states import PREPARED, TransactionState, completion_of
from partage.transactions.transaction import EPOCH_MAX, LAST_CLIENT_EPOCH, Transaction

#: By version 2, repeated request, commit.
_CASES: dict[tuple[bool, bool, bool], TransactionCase] = {
    (False, False, True): TransactionCase.COMMIT,
    (False, False, False): TransactionCase.ABORT,
    (True, False, True): TransactionCase.COMMIT_2,
    (True, False, False): TransactionCase.ABORT_2,
    (True, True, True): TransactionCase.REPEATED_COMMIT_2,
    (True, True, False): TransactionCase.REPEATED_ABORT_2,
}


def end_transaction(
    context: TransactionContext, transaction: Transaction | None, event: EndTransaction
) -> None:
    """Decide a transaction. The reply is sent when the decision is durable, before the markers."""
    error, is_repeated = _validate(transaction, event)
    if error is not None or transaction is None:
        context.reply(event.reply_to, ProducerReply(error=error or ErrorCode.NONE))
        return
    record = transaction.record
    case = _CASES[event.version >= VERSION_2, is_repeated, event.is_commit]
    response = RESPONSES[case][record.state]
    match response:
        case TransactionResponse.PREPARE | TransactionResponse.ABORT_NOTHING:
            prepared = _prepare(context, record, event)
            reply = _reply_of(prepared)
        case TransactionResponse.DONE if is_repeated and record.epoch > LAST_CLIENT_EPOCH:
            # A timeout fenced the last epoch of a client. No client gets the epoch above it.
            reply = ProducerReply(error=ErrorCode.PRODUCER_FENCED)
        case TransactionResponse.DONE:
            reply = _reply_of(record)
        case _:
            reply = ProducerReply(error=RESPONSE_ERRORS[response])
    context.reply(event.reply_to, reply)


def _validate(
    transaction: Transaction | None, event: EndTransaction
) -> tuple[ErrorCode | None, bool]:
    """Return the error, and whether the request repeats an earlier one."""
    if not event.transactional_id:
        return ErrorCode.INVALID_REQUEST, False
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False
    record = transaction.record
    if record.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS, False
    if event.version >= VERSION_2 and transaction.is_repeated_end(event.producer_id, event.epoch):
        return None, True
    if event.producer_id != record.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False
    if event.epoch != record.epoch:
        return ErrorCode.PRODUCER_FENCED, False
    return None, False


def _reply_of(record: TransactionRecord) -> ProducerReply:
    """Return the id and epoch that the producer uses for its next transaction."""
    if record.next_producer_id != NO_PRODUCER_ID:
        return ProducerReply(producer_id=record.next_producer_id, epoch=0)
    return ProducerReply(producer_id=record.producer_id, epoch=record.epoch)


def _prepare(
    context: TransactionContext, record: TransactionRecord, event: EndTransaction
) -> TransactionRecord:
    """Store the decision. From version 2 on, it has the next epoch (KIP-890)."""
    bumps = event.version >= VERSION_2
    next_producer_id = NO_PRODUCER_ID
    if bumps and record.epoch >= LAST_CLIENT_EPOCH:
        next_producer_id = event.fresh_producer_id
    is_open = record.state is TransactionState.ONGOING
    prepared = msgspec.structs.replace(
        record,
        previous_producer_id=record.producer_id,
        next_producer_id=next_producer_id,
        epoch=min(record.epoch + 1, EPOCH_MAX) if bumps else record.epoch,
        last_epoch=record.epoch if bumps else record.last_epoch,
        state=TransactionState.PREPARE_COMMIT
        if event.is_commit
        else TransactionState.PREPARE_ABORT,
        partitions=record.partitions if is_open else (),
        updated_ms=context.wall_ms,
        started_ms=record.started_ms if is_open else context.wall_ms,
        version=event.version,
    )
    _decide(context, prepared)
    return prepared


def abort_open(context: TransactionContext, record: TransactionRecord) -> None:
    """Abort the open transaction with the next epoch, which fences its producer."""
    _decide(
        context,
        msgspec.structs.replace(
            record,
            previous_producer_id=record.producer_id,
            epoch=min(record.epoch + 1, EPOCH_MAX),
            last_epoch=record.epoch,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=context.wall_ms,
            version=VERSION_2,
        ),
    )


def _decide(context: TransactionContext, prepared: TransactionRecord) -> None:
    context.write(prepared)
    write_markers(context, Transaction(prepared))


def write_markers(context: TransactionContext, transaction: Transaction) -> None:
    """Order the markers of a decided transaction; without partitions it is complete at once."""
    record = transaction.record
    if not transaction.unmarked:
        _complete(context, record)
        return
    context.markers.append(
        MarkersToWrite(
            transactional_id=record.transactional_id,
            producer_id=record.producer_id,
            epoch=record.epoch,
            is_commit=record.state is TransactionState.PREPARE_COMMIT,
            version=record.version,
            partitions=record.partitions,
        )
    )


def on_markers_written(
    context: TransactionContext, transaction: Transaction, event: MarkersWritten
) -> None:
    """Complete the transaction after its last marker. Late reports of an earlier one do nothing."""
    record = transaction.record
    is_current = (event.producer_id, event.epoch) == (record.producer_id, record.epoch)
    if record.state not in PREPARED or not is_current:
        return
    transaction.unmarked.difference_update(event.partitions)
    if not transaction.unmarked:
        _complete(context, record)


def _complete(context: TransactionContext, record: TransactionRecord) -> None:
    is_renamed = record.next_producer_id != NO_PRODUCER_ID
    context.write(
        msgspec.structs.replace(
            record,
            previous_producer_id=record.producer_id,
            producer_id=record.next_producer_id if is_renamed else record.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            epoch=0 if is_renamed else record.epoch,
            state=completion_of(record.state),
            partitions=(),
            updated_ms=context.wall_ms,
        )
    )
