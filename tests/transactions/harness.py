"""A shard with a log in memory, whose writes may be held, fail, or be lost by a crash."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_driver import TransactionDriver
from partage.store.transaction_log import encode_transactions, replay_transactions
from partage.transactions.events import MarkersWritten, TransactionEvent, TransactionRequest
from partage.transactions.invariants import check_change, check_shard
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionLogRecord, TransactionRecord
from partage.transactions.replies import TransactionReply
from partage.transactions.shard import TransactionShard
from partage.transactions.states import TransactionState

Edge = tuple[TransactionState, TransactionState]


class Harness:
    """One shard, and what its clients and leaders see.

    Attributes:
        log: the durable records.
        written: records on their way to the log, each with its mark.
        replies: replies in the order in which they were sent, by request.
        orders: markers that were ordered and not reported, in order.
        edges: the transitions of all transactional ids.
    """

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now_ms = 1_000_000
        self.log: list[TransactionLogRecord] = []
        self.written: list[tuple[TransactionLogRecord, int]] = []
        self.appended: list[TransactionLogRecord] = []
        self.replies: list[tuple[TransactionRequest, TransactionReply]] = []
        self.orders: list[MarkersToWrite] = []
        self.edges: set[Edge] = set()
        self.is_held = False
        #: The last durable record of each transactional id.
        self.durable: dict[str, TransactionRecord] = {}
        self.tickets: dict[object, TransactionRequest] = {}
        self._ids = count()
        self.wall_offset_ms = 0
        self.driver = TransactionDriver(lambda: self.wall_offset_ms)
        self.load()

    @property
    def shard(self) -> TransactionShard:
        """The state machine."""
        assert self.driver.shard is not None
        return self.driver.shard

    def fresh_id(self) -> int:
        """Return a new producer id."""
        return next(self._ids)

    # Events.

    def handle(self, event: TransactionEvent) -> None:
        """Hand an event in, and write its records."""
        if isinstance(event, TransactionRequest):
            self.tickets[event.reply_to] = event
        self.driver.handle(event)
        self._settle()

    def report(self, order: MarkersToWrite, partitions: Iterable[TopicPartition]) -> None:
        """Report markers of an order as durable."""
        self.handle(
            MarkersWritten(
                at_ms=self.now_ms,
                transactional_id=order.transactional_id,
                producer_id=order.producer_id,
                epoch=order.epoch,
                partitions=tuple(partitions),
            )
        )

    def tick(self, ms: int) -> None:
        """Advance the time, and fire the timers on the way."""
        until_ms = self.now_ms + ms
        while (wake_ms := self.driver.timers.wake_at_ms()) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self.driver.fire_due(self.now_ms)
            self._settle()
        self.now_ms = until_ms

    # The log.

    def release(self) -> None:
        """Make everything durable that was written."""
        self.is_held = False
        self._settle()

    def fail(self) -> None:
        """Reject what was written, and load the shard again."""
        self.written.clear()
        self.driver.fail()
        self._take_replies()
        self.is_held = False
        self.orders.clear()
        self.load()

    def crash(self, kept: int = 0) -> None:
        """Lose everything but the log and the first records on their way to it."""
        for record, _ in self.written[:kept]:
            self._follow(record)
        self.written.clear()
        self.is_held = False
        self.orders.clear()
        self.tickets.clear()
        self.driver = TransactionDriver(lambda: self.wall_offset_ms)
        self.load()

    def load(self) -> None:
        """Load the shard from the bytes of its log."""
        batches = encode_transactions(self.log, self.now_ms)
        self.driver.activate(replay_transactions(batches, self.settings), self.now_ms)
        self._settle()

    def _settle(self) -> None:
        if self.driver.shard is not None:
            check_shard(self.driver.shard)
        records, mark, _ = self.driver.pop_unsent()
        self.appended += records
        self.written += [(record, mark) for record in records]
        if self.written and not self.is_held:
            for record, _ in self.written:
                self._follow(record)
            mark = self.written[-1][1]
            self.written.clear()
            self.driver.on_durable(mark)
        self.orders += self.driver.pop_markers()
        self._take_replies()

    def _follow(self, record: TransactionLogRecord) -> None:
        """Check a record that becomes durable against the one before it, and append it."""
        before = self.durable.get(record.transactional_id)
        if isinstance(record, TransactionRecord):
            if before is not None:
                check_change(before, record)
                self.edges.add((before.state, record.state))
            self.durable[record.transactional_id] = record
        elif before is not None:
            del self.durable[record.transactional_id]
        self.log.append(record)

    def _take_replies(self) -> None:
        for ticket, reply in self.driver.pop_ready(1 << 30):
            self.replies.append((self.tickets.pop(ticket), reply))
