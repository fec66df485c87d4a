"""InitProducerId: a producer starts or recovers, and fences its predecessors."""

from __future__ import annotations

import msgspec

from partage.model.errors import ErrorCode
from partage.transactions import end
from partage.transactions.events import InitProducer
from partage.transactions.outcome import TransactionContext
from partage.transactions.records import NO_EPOCH, NO_PRODUCER_ID, TransactionRecord
from partage.transactions.replies import ProducerReply
from partage.transactions.response_table import (
    RESPONSE_ERRORS,
    RESPONSES,
    TransactionCase,
    TransactionResponse,
)
from partage.transactions.states import TransactionState
from partage.transactions.transaction import LAST_CLIENT_EPOCH, Transaction


def init_producer(
    context: TransactionContext, transaction: Transaction | None, event: InitProducer
) -> None:
    """Give a producer its id and epoch, or abort the open transaction first."""
    error = _validate(context, event)
    if error is not None:
        context.reply(event.reply_to, ProducerReply(error=error))
        return
    case = _case(transaction, event)
    response = RESPONSES[case][transaction.record.state if transaction else None]
    if transaction is None:
        _create(context, event)
        return
    record = transaction.record
    match response:
        case TransactionResponse.BUMP if transaction.is_exhausted:
            last_epoch = NO_EPOCH if case is TransactionCase.INIT_NEW else record.epoch
            _store(context, event, record, event.fresh_producer_id, 0, last_epoch)
        case TransactionResponse.BUMP:
            last_epoch = NO_EPOCH if case is TransactionCase.INIT_NEW else record.epoch
            _store(context, event, record, record.producer_id, record.epoch + 1, last_epoch)
        case TransactionResponse.KEEP_EPOCH if record.epoch > LAST_CLIENT_EPOCH:
            # A timeout fenced the last epoch of a client. No client gets the epoch above it.
            _store(context, event, record, event.fresh_producer_id, 0, event.epoch)
        case TransactionResponse.KEEP_EPOCH:
            _keep(context, event, record)
        case TransactionResponse.ABORT_OPEN:
            end.abort_open(context, record)
            error = ErrorCode.CONCURRENT_TRANSACTIONS
            context.reply(event.reply_to, ProducerReply(error=error))
        case _:
            context.reply(event.reply_to, ProducerReply(error=RESPONSE_ERRORS[response]))


def _validate(context: TransactionContext, event: InitProducer) -> ErrorCode | None:
    """Return the error of a request that is invalid in every state; None if it is valid."""
    if (event.producer_id == NO_PRODUCER_ID) != (event.epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not event.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < event.timeout_ms <= context.settings.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _case(transaction: Transaction | None, event: InitProducer) -> TransactionCase:
    if event.producer_id == NO_PRODUCER_ID or transaction is None:
        return TransactionCase.INIT_NEW
    record = transaction.record
    if event.producer_id != record.producer_id:
        # The response with a new producer id may have been lost.
        is_repeated = (
            event.producer_id == record.previous_producer_id and event.epoch >= LAST_CLIENT_EPOCH
        )
        if not is_repeated:
            return TransactionCase.INIT_FOREIGN
    elif event.epoch == record.epoch:
        return TransactionCase.INIT_CURRENT
    if event.epoch == record.last_epoch:
        return TransactionCase.INIT_LAST
    return TransactionCase.INIT_STALE


def _create(context: TransactionContext, event: InitProducer) -> None:
    record = TransactionRecord(
        transactional_id=event.transactional_id,
        producer_id=event.fresh_producer_id,
        previous_producer_id=event.fresh_producer_id,  # as in Kafka
        epoch=0,
        timeout_ms=event.timeout_ms,
        updated_ms=context.wall_ms,
    )
    context.write(record)
    context.reply(event.reply_to, ProducerReply(producer_id=record.producer_id, epoch=0))


def _keep(context: TransactionContext, event: InitProducer, record: TransactionRecord) -> None:
    """Repeat the last response; a further repetition gets it again."""
    context.write(_emptied(context, event, record))
    reply = ProducerReply(producer_id=record.producer_id, epoch=record.epoch)
    context.reply(event.reply_to, reply)


def _emptied(
    context: TransactionContext, event: InitProducer, record: TransactionRecord
) -> TransactionRecord:
    return msgspec.structs.replace(
        record,
        timeout_ms=event.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=(),
        updated_ms=context.wall_ms,
        started_ms=-1,
    )


def _store(
    context: TransactionContext,
    event: InitProducer,
    record: TransactionRecord,
    producer_id: int,
    epoch: int,
    last_epoch: int,
) -> None:
    context.write(
        msgspec.structs.replace(
            _emptied(context, event, record),
            producer_id=producer_id,
            previous_producer_id=record.producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
        )
    )
    context.reply(event.reply_to, ProducerReply(producer_id=producer_id, epoch=epoch))
