"""A shard: the transactional ids of one partition of ``__transaction_state``.

It is the entry point of the state machine.

`TransactionShard.handle` takes one event and returns its outcome. `TransactionShard.apply` is the
only writer of durable state. Handlers and loading both call it, so loading restores exactly what
the handlers stored. To load a shard, `apply` every record of its log in order, then call `resume`
once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from partage.model.errors import ErrorCode
from partage.model.settings import TransactionSettings
from partage.transactions import end, init, partitions
from partage.transactions.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    TransactionEvent,
    TransactionTimedOut,
    TransactionTimerFired,
    VerifyPartitions,
)
from partage.transactions.outcome import TransactionContext, TransactionOutcome
from partage.transactions.records import (
    TransactionLogRecord,
    TransactionRecord,
    TransactionTombstone,
)
from partage.transactions.replies import DescribeTransactionReply, ListTransactionsReply
from partage.transactions.states import ENDED, PREPARED, TransactionState
from partage.transactions.timers import IdExpiryTimer, TimeoutCheckTimer
from partage.transactions.transaction import Transaction

#: Transactional ids that one event checks for expiry. Requests are handled between two events.
EXPIRY_IDS_PER_EVENT: Final = 1_000
_NEXT_EXPIRY_EVENT_MS: Final = 1


class TransactionShard:
    """Transactional ids and their transactions."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        #: The system time minus the time of events. The driver keeps it up to date.
        self.wall_offset_ms = 0
        self._now_ms = 0  # the time of the current event
        self.transactions: dict[str, Transaction] = {}
        #: The ids with an open transaction, and the times of events at which they began. Durable
        #: times cannot replace these: a change of the system time must not abort a transaction.
        self.ongoing: dict[str, int] = {}
        self._is_timeout_check_armed = False
        self._is_expiry_armed = False
        self._unchecked_ids = deque[str]()  # of the expiry check under way

    # Durable state.

    def apply(self, record: TransactionLogRecord) -> None:
        """Apply a record that is in the log, or is about to be appended."""
        transactional_id = record.transactional_id
        if isinstance(record, TransactionTombstone):
            self.transactions.pop(transactional_id, None)
            self.ongoing.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = Transaction(record)
        if record.state is TransactionState.ONGOING:
            self.ongoing.setdefault(transactional_id, self._now_ms)
        else:
            self.ongoing.pop(transactional_id, None)

    def resume(self, at_ms: int) -> TransactionOutcome:
        """Resume after loading: write the markers of decided transactions again."""
        context = self._context(at_ms)
        for transactional_id in self.ongoing:
            record = self.transactions[transactional_id].record
            age_ms = max(context.wall_ms - record.started_ms, 0)
            self.ongoing[transactional_id] = at_ms - age_ms
        for transaction in list(self.transactions.values()):
            if transaction.record.state in PREPARED:
                end.write_markers(context, transaction)
        self._arm_timers(context)
        return context

    # Events.

    def handle(self, event: TransactionEvent) -> TransactionOutcome:
        """Handle an event. See `TransactionOutcome` for the duties of the caller."""
        context = self._context(event.at_ms)
        _HANDLERS[type(event)](self, context, event)
        self._arm_timers(context)
        return context

    def _context(self, at_ms: int) -> TransactionContext:
        self._now_ms = at_ms
        return TransactionContext(at_ms, at_ms + self.wall_offset_ms, self.settings, self.apply)

    def _arm_timers(self, context: TransactionContext) -> None:
        """Arm the timers of a shard that needs them; a shard without ids needs none."""
        if self.ongoing and not self._is_timeout_check_armed:
            self._is_timeout_check_armed = True
            context.arm_timer(TimeoutCheckTimer(), self.settings.abort_check_interval_ms)
        if self.transactions and not self._is_expiry_armed:
            self._is_expiry_armed = True
            context.arm_timer(IdExpiryTimer(), self.settings.expiry_check_interval_ms)

    def _init(self, context: TransactionContext, event: InitProducer) -> None:
        init.init_producer(context, self.transactions.get(event.transactional_id), event)

    def _add(self, context: TransactionContext, event: AddPartitions) -> None:
        partitions.add_partitions(context, self.transactions.get(event.transactional_id), event)

    def _verify(self, context: TransactionContext, event: VerifyPartitions) -> None:
        partitions.verify_partitions(context, self.transactions.get(event.transactional_id), event)

    def _end(self, context: TransactionContext, event: EndTransaction) -> None:
        end.end_transaction(context, self.transactions.get(event.transactional_id), event)

    def _markers_written(self, context: TransactionContext, event: MarkersWritten) -> None:
        transaction = self.transactions.get(event.transactional_id)
        if transaction is not None:
            end.on_markers_written(context, transaction, event)

    def _describe(self, context: TransactionContext, event: DescribeTransaction) -> None:
        transaction = self.transactions.get(event.transactional_id)
        if not event.transactional_id:
            reply = DescribeTransactionReply(error=ErrorCode.INVALID_REQUEST)
        elif transaction is None:
            reply = DescribeTransactionReply(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            reply = DescribeTransactionReply(record=transaction.record)
        context.reply(event.reply_to, reply)

    def _list(self, context: TransactionContext, event: ListTransactions) -> None:
        names = tuple(self.transactions) if event.names is None else event.names
        count = len(names) if event.count_max is None else event.count_max
        found = (self.transactions.get(name) for name in names[:count])
        records = tuple(
            transaction.record
            for transaction in found
            if transaction is not None and _matches(transaction.record, event, context.wall_ms)
        )
        context.reply(
            event.reply_to, ListTransactionsReply(records=records, unlisted=names[count:])
        )

    def _timed_out(self, context: TransactionContext, event: TransactionTimedOut) -> None:
        if event.transactional_id in self.ongoing:
            end.abort_open(context, self.transactions[event.transactional_id].record)

    def _timer_fired(self, context: TransactionContext, event: TransactionTimerFired) -> None:
        match event.key:
            case TimeoutCheckTimer():
                self._is_timeout_check_armed = False
                for transactional_id, began_ms in list(self.ongoing.items()):
                    record = self.transactions[transactional_id].record
                    if began_ms + record.timeout_ms < context.at_ms:
                        end.abort_open(context, record)
            case IdExpiryTimer():
                self._is_expiry_armed = False
                self._expire_ids(context)

    def _expire_ids(self, context: TransactionContext) -> None:
        """Remove expired ids. A shard with many ids continues with the next event."""
        if not self._unchecked_ids:
            self._unchecked_ids.extend(self.transactions)
        expired_ms = context.wall_ms - self.settings.id_expiration_ms
        for _ in range(min(len(self._unchecked_ids), EXPIRY_IDS_PER_EVENT)):
            transactional_id = self._unchecked_ids.popleft()
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                continue
            record = transaction.record
            if record.state in ENDED and record.updated_ms <= expired_ms:
                context.write(TransactionTombstone(transactional_id=transactional_id))
        if self._unchecked_ids:
            self._is_expiry_armed = True
            context.arm_timer(IdExpiryTimer(), _NEXT_EXPIRY_EVENT_MS)


def _matches(record: TransactionRecord, event: ListTransactions, wall_ms: int) -> bool:
    """True if the filters of a request pass a record.

    As in Kafka, the duration counts from the start of the last transaction, also if it has ended.
    """
    return (
        (not event.states or record.state in event.states)
        and (not event.producer_ids or record.producer_id in event.producer_ids)
        and (event.pattern is None or event.pattern.matches(record.transactional_id))
        and (event.duration_ms < 0 or wall_ms - record.started_ms > event.duration_ms)
    )


_HANDLERS: dict[
    type[TransactionEvent], Callable[[TransactionShard, TransactionContext, Any], None]
] = {
    InitProducer: TransactionShard._init,
    AddPartitions: TransactionShard._add,
    VerifyPartitions: TransactionShard._verify,
    EndTransaction: TransactionShard._end,
    MarkersWritten: TransactionShard._markers_written,
    DescribeTransaction: TransactionShard._describe,
    ListTransactions: TransactionShard._list,
    TransactionTimedOut: TransactionShard._timed_out,
    TransactionTimerFired: TransactionShard._timer_fired,
}
