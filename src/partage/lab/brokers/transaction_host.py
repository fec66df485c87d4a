"""Host of the transaction coordinator's shard: a shell on the virtual clock around its driver.

It corresponds to `partage.broker.transactions.transaction_shard_host` on asyncio. A single broker
has one shard, on its disk. Brokers that share a ZooKeeper have several shards there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from partage.lab import history
from partage.lab.brokers.marker_writer import SimMarkerWriter
from partage.lab.brokers.shard_host import StateStore
from partage.lab.brokers.shell import BrokerShell
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.timer_scheduler import TimerScheduler
from partage.runtime.transaction_driver import TransactionDriver
from partage.store.transaction_log import encode_transactions, replay_transactions
from partage.transactions.events import InitProducer, MarkersWritten, TransactionEvent
from partage.transactions.invariants import check_change, check_shard
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionLogRecord, TransactionRecord
from partage.transactions.shard import TransactionShard
from partage.transactions.states import ENDED, PREPARED, TransactionState
from partage.wire.types import Buffer

_COMPLETE: Final = ENDED - {TransactionState.EMPTY}
_TIMERS_PER_TURN: Final = 256  # the same limit as in the broker's event loop


class SimReplyTicket:
    """The ticket of a request; equal only to itself. ``done`` is called with the reply."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.done = done


class AwaitedAbort(NamedTuple):
    """A stored step of an abort that an InitProducerId request waits for."""

    state: TransactionState


class SimTransactionHost:
    """The host of a shard of the transaction coordinator in one broker process."""

    def __init__(self, broker: BrokerShell, store: StateStore, markers: SimMarkerWriter) -> None:
        self.driver = TransactionDriver()
        self.is_closed = False  # the process has ended
        self._broker = broker
        self._world = broker.world
        self._store = store
        self._is_resigned = False
        self._markers = markers
        self._incarnation = 0  # number of times that the state was discarded
        self._is_append_scheduled = False
        self._is_sending_replies = False
        self._alarm = TimerScheduler(self)
        self._known: dict[str, TransactionRecord] = {}  # the last record of each id
        # ids and epochs of the producers whose transactions InitProducerId requests wait for
        self._awaited = set[tuple[int, int]]()
        self._reports: dict[str, MarkersWritten] = {}  # the last one of each transactional id

    # Loading

    def schedule_load(self) -> None:
        """Load the shard after a random delay. Meanwhile requests fail with a loading error."""
        incarnation = self._incarnation

        def load() -> None:
            if incarnation == self._incarnation:
                self._store.load(loaded)

        def loaded(content: Sequence[Buffer]) -> None:
            if incarnation == self._incarnation:
                self._activate(self._replay(content))

        self._broker.call_later(self._world.broker_rng.choice((0, 5, 300)), load)

    def _replay(self, content: Sequence[Buffer]) -> TransactionShard:
        """Return the shard of the log, in which a new world may have old producer ids."""
        options = self._world.options
        if not content and options.first_epoch and options.brokers == 1:
            records: list[TransactionLogRecord] = [
                TransactionRecord(
                    transactional_id=f"tx{number}",
                    producer_id=self._world.next_producer_id(),
                    epoch=options.first_epoch,
                    timeout_ms=options.transaction_timeout_ms,
                    updated_ms=self._world.now_ms,
                )
                for number in range(options.transactional_producers)
            ]
            content = encode_transactions(records, self._world.now_ms)
            self._store.append([bytes(batch) for batch in content], lambda error: None)
        shard = replay_transactions(content, self._world.transaction_settings)
        for transaction in shard.transactions.values():
            if transaction.record.state in PREPARED:  # it is durable, but maybe not acknowledged
                self._record_decisions([transaction.record])
        return shard

    def _activate(self, shard: TransactionShard) -> None:
        self._known = {name: one.record for name, one in shard.transactions.items()}
        self.driver.activate(shard, self._world.now_ms)
        self._world.append_history(
            history.TransactionShardLoaded(at_ms=self._world.now_ms, broker=self._broker.broker_id)
        )
        self.flush()

    def reload(self) -> None:
        """Drop the shard after a failure of its log or of the shard itself, and load it again."""
        self._world.record_incident("the transaction coordinator reloads its shard")
        self._reset()
        self.driver.fail()
        self.flush()
        incarnation = self._incarnation

        def opened() -> None:
            if incarnation == self._incarnation:
                self.schedule_load()

        self._store.reopen(opened)

    def _reset(self) -> None:
        """Invalidate pending loads, writes, orders and timers."""
        if self.driver.shard is not None:
            self._world.append_history(
                history.TransactionShardDropped(
                    at_ms=self._world.now_ms, broker=self._broker.broker_id
                )
            )
        self._incarnation += 1
        self._is_append_scheduled = False
        self._alarm.cancel()

    def resign(self) -> None:
        """Drop the shard because another broker may own it, and redirect its clients."""
        self._reset()
        self.driver.resign()
        self._is_resigned = True
        self.flush()

    def start_loading(self) -> None:
        """Prepare to load the shard."""
        self._is_resigned = False
        self.driver.start_loading()

    # Events

    def handle(self, event: TransactionEvent) -> None:
        """Pass an event to the state machine."""
        if not self.is_closed:
            self.driver.handle(event)
            if isinstance(event, InitProducer):
                self._await_abort(event.transactional_id)
            self.flush()

    def _await_abort(self, transactional_id: str) -> None:
        shard = self.driver.shard
        transaction = None if shard is None else shard.transactions.get(transactional_id)
        if transaction is not None and transaction.record.state is TransactionState.PREPARE_ABORT:
            self._awaited.add((transaction.record.producer_id, transaction.record.epoch))

    def flush(self) -> None:
        """Send durable replies and markers, schedule the append of new records and the next timer.

        Markers must not overtake the replies that were decided before them. At a crash point the
        process ends here.
        """
        if self.is_closed:
            return
        driver = self.driver
        if driver.shard is not None and self._world.has_invariant_checks:
            check_shard(driver.shard)
        if driver.ready and not self._is_sending_replies:
            self._is_sending_replies = True
            while driver.ready and (self._is_resigned or self._store.may_answer()):
                for ticket, reply in driver.pop_ready(128):
                    ticket.done(reply)
            self._is_sending_replies = False
        if driver.unsent and not self._is_append_scheduled:
            self._is_append_scheduled = True
            incarnation = self._incarnation
            self._broker.call_later(0, lambda: self._append_unsent(incarnation))
        if not self._is_sending_replies and not driver.ready:
            for markers in driver.pop_markers():
                self._repeat_report(markers)
                self._markers.write(_Order(self, markers))
        if not self.is_closed:
            self._alarm.schedule(driver.timers.wake_at_ms())

    def open_tickets(self) -> set[Any]:
        """Return the tickets of the requests without a reply."""
        return set(self.driver._open_requests)

    # Log

    def _append_unsent(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        self._is_append_scheduled = False
        records, mark, event_ends = self.driver.pop_unsent()
        if records:
            self._append(records, mark, event_ends)

    def _append(
        self, records: list[TransactionLogRecord], mark: int, event_ends: list[int]
    ) -> None:
        self._check_changes(records)
        steps = [*records, *self._awaited_aborts(records)]
        if self._broker.hit_crash_point(steps, is_stored=False):
            return
        self._record_attempts(records)
        completions = self._record_completions(records)
        incarnation = self._incarnation

        def done(error: ErrorCode) -> None:
            if incarnation != self._incarnation or self.is_closed:
                return
            if error:
                self.reload()
                return
            for serial in completions:
                self._world.append_history(
                    history.CompletionDurable(at_ms=self._world.now_ms, serial=serial)
                )
            self._record_decisions(records)
            if not self._broker.hit_crash_point(steps, is_stored=True):
                self.driver.on_durable(mark)
                self.flush()

        batches = encode_transactions(records, self._world.now_ms, event_ends=event_ends)
        if not self._store.append(
            batches, lambda error: self._broker.when_awake(lambda: done(error))
        ):
            self.reload()

    def _awaited_aborts(self, records: list[TransactionLogRecord]) -> list[AwaitedAbort]:
        return [
            AwaitedAbort(record.state)
            for record in records
            if isinstance(record, TransactionRecord)
            and (record.producer_id, record.epoch) in self._awaited
        ]

    def _record_attempts(self, records: list[TransactionLogRecord]) -> None:
        for record in records:
            if isinstance(record, TransactionRecord) and record.state in PREPARED:
                self._world.append_history(
                    history.DecisionAppended(
                        at_ms=self._world.now_ms,
                        transactional_id=record.transactional_id,
                        producer_id=record.producer_id,
                        epoch=record.epoch,
                    )
                )

    def _record_decisions(self, records: list[TransactionLogRecord]) -> None:
        for record in records:
            if isinstance(record, TransactionRecord) and record.state in PREPARED:
                self._world.append_history(
                    history.DecisionDurable(
                        at_ms=self._world.now_ms,
                        transactional_id=record.transactional_id,
                        producer_id=record.producer_id,
                        epoch=record.epoch,
                        is_commit=record.state is TransactionState.PREPARE_COMMIT,
                    )
                )

    def _record_completions(self, records: list[TransactionLogRecord]) -> list[int]:
        """Return the serial numbers of the transactions that these records complete."""
        serials = []
        for record in records:
            if isinstance(record, TransactionRecord) and record.state in _COMPLETE:
                serials.append(self._world.next_completion())
                self._world.append_history(
                    history.CompletionAppended(
                        at_ms=self._world.now_ms,
                        serial=serials[-1],
                        transactional_id=record.transactional_id,
                        producer_id=record.previous_producer_id,
                        epoch=record.epoch,
                    )
                )
        return serials

    def _check_changes(self, records: list[TransactionLogRecord]) -> None:
        for record in records:
            before = self._known.pop(record.transactional_id, None)
            if isinstance(record, TransactionRecord):
                self._known[record.transactional_id] = record
                if before is not None:
                    check_change(before, record)
            else:
                self._world.append_history(
                    history.TransactionalIdExpired(
                        at_ms=self._world.now_ms, transactional_id=record.transactional_id
                    )
                )

    # Markers

    @property
    def coordinator_epoch(self) -> int | None:
        """Epoch of the current ownership of the shard; None on a single broker."""
        return self._store.epoch or None

    @property
    def incarnation(self) -> int:
        """Number of times that the state was discarded."""
        return self._incarnation

    def report(self, markers: MarkersToWrite, partitions: tuple[TopicPartition, ...]) -> None:
        """Report durable markers to the state machine."""
        event = MarkersWritten(
            at_ms=self._world.now_ms,
            transactional_id=markers.transactional_id,
            producer_id=markers.producer_id,
            epoch=markers.epoch,
            partitions=partitions,
        )
        self._reports[event.transactional_id] = event
        self.handle(event)

    def _repeat_report(self, markers: MarkersToWrite) -> None:
        """Repeat a report about an earlier transaction, which must change nothing.

        Before KIP-890, the transactions of a producer may have the same epoch. Then a shell must
        not repeat a report.
        """
        event = self._reports.get(markers.transactional_id)
        if event is not None and (event.producer_id, event.epoch) != (
            markers.producer_id,
            markers.epoch,
        ):
            self.driver.handle(msgspec.structs.replace(event, at_ms=self._world.now_ms))

    # Interface of the timer scheduler: see `partage.runtime.timer_scheduler.TimerShell`

    def now_ms(self) -> int:
        """Return the time, in ms since the epoch."""
        return self._world.now_ms

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, if the process still lives then."""
        self._broker.call_later(delay_ms, call)

    def call_after_input(self, call: Callable[[], None]) -> None:
        """Call after the input of this moment was handled."""
        self._broker.call_later(0, call)

    def may_fire(self) -> bool:
        """Return True if no other broker may own the shard; otherwise timers must wait."""
        return self._store.may_answer()

    def fire_timers(self, now_ms: int, until_ms: int) -> None:
        """Fire due timers, as many as one turn of the broker's event loop would."""
        self.driver.fire_due(now_ms, _TIMERS_PER_TURN, until_ms)
        self.flush()

    def on_stall(self, stood_ms: int) -> None:
        """Flush after the timers were delayed by the time in which no request could arrive."""
        self.flush()


class _Order:
    """An order of markers; it reports all that become durable at one moment together."""

    def __init__(self, host: SimTransactionHost, markers: MarkersToWrite) -> None:
        self.markers = markers
        self.coordinator_epoch = host.coordinator_epoch
        self._host = host
        self._incarnation = host.incarnation
        self._unreported: list[TopicPartition] = []

    @property
    def is_current(self) -> bool:
        """False if the shard was discarded since, or the process has ended."""
        return self._incarnation == self._host.incarnation and not self._host.is_closed

    def on_written(self, partition: TopicPartition) -> None:
        """Report a marker soon."""
        if not self._unreported:
            self._host.call_later(0, self._report)
        self._unreported.append(partition)

    def _report(self) -> None:
        written, self._unreported = self._unreported, []
        if self.is_current:
            self._host.report(self.markers, tuple(written))
