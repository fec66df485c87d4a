"""Hosts of the transaction coordinator's shards and its marker writer, recorded and with faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from partage.broker.coordination.state_store import ContentReader, StateStore, StoredCallback
from partage.broker.transactions.local_markers import MarkerDone
from partage.broker.transactions.marker_writer import MarkerOrder, MarkerWriter
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.lab import history
from partage.lab.brokers.shell import BrokerShell
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_markers import is_settled
from partage.store.transaction_log import encode_transactions, replay_transactions
from partage.transactions.events import InitProducer, MarkersWritten
from partage.transactions.invariants import check_change, check_shard
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionLogRecord, TransactionRecord
from partage.transactions.shard import TransactionShard
from partage.transactions.states import ENDED, PREPARED, TransactionState

_COMPLETE: Final = ENDED - {TransactionState.EMPTY}


class AwaitedAbort(NamedTuple):
    """A stored step of an abort that an InitProducerId request waits for."""

    state: TransactionState


class RecordedTransactionHost(TransactionShardHost):
    """A host that records its decisions, and checks the invariants after each event.

    Attributes:
        owner: The broker.
    """

    owner: ClassVar[BrokerShell]

    def __init__(self, name: str, store: StateStore, *more: Any) -> None:
        self._records = _RecordedStore(store, self.owner)
        self._last_reports: dict[str, MarkersWritten] = {}  # of each transactional id
        super().__init__(name, self._records, *more)

    @property
    def driver(self) -> Any:
        """The driver of the shard."""
        return self._driver

    def open_tickets(self) -> set[Any]:
        """Return the tickets of the requests without a reply."""
        return set(self._driver._open_requests)

    def reload(self) -> None:
        """Drop the shard, as after a failure of its log, and load it again."""
        self.owner.world.record_incident("the transaction coordinator reloads its shard")
        self._loop_enter(lambda: self._fail(OSError("injected")))

    def _loop_enter(self, call: Callable[[], None]) -> None:
        self.owner.enter(call)

    def start_empty(self) -> None:
        """Activate the shard; a new world may have old producer ids."""
        world, options = self.owner.world, self.owner.world.options
        if not options.first_epoch or options.brokers > 1:
            super().start_empty()
            return
        records: list[TransactionLogRecord] = [
            TransactionRecord(
                transactional_id=f"tx{number}",
                producer_id=world.next_producer_id(),
                epoch=options.first_epoch,
                timeout_ms=options.transaction_timeout_ms,
                updated_ms=self.owner.wall_ms,
            )
            for number in range(options.transactional_producers)
        ]
        self._records.append_first(records, world.now_ms)
        self._activate(
            replay_transactions(encode_transactions(records, world.now_ms), self._settings)
        )
        self._flush_outputs()

    def _activate(self, shard: TransactionShard) -> None:
        self._records.on_loaded(shard)
        super()._activate(shard)
        self._append_entry(history.TransactionShardLoaded)

    def _discard_state(self) -> None:
        if self._driver.shard is not None:
            self._append_entry(history.TransactionShardDropped)
        self._records.on_discarded()
        super()._discard_state()

    def _append_entry(self, kind: Any) -> None:
        world = self.owner.world
        world.append_history(kind(at_ms=world.now_ms, broker=self.owner.broker_id))

    def handle(self, event: Any) -> None:
        """Handle an event, and note the abort that it waits for."""
        super().handle(event)
        if isinstance(event, InitProducer) and self._driver.shard is not None:
            transaction = self._driver.shard.transactions.get(event.transactional_id)
            if transaction is not None:
                self._records.note_awaited(transaction.record)

    def report(self, markers: MarkersToWrite, partitions: tuple[TopicPartition, ...]) -> None:
        """Report durable markers to the state machine, and keep the report."""
        self._last_reports[markers.transactional_id] = MarkersWritten(
            at_ms=self._clock.now_ms(),
            transactional_id=markers.transactional_id,
            producer_id=markers.producer_id,
            epoch=markers.epoch,
            partitions=partitions,
        )
        super().report(markers, partitions)

    def repeat_report(self, markers: MarkersToWrite) -> None:
        """Repeat a report about an earlier transaction, which must change nothing.

        Before KIP-890, the transactions of a producer may have the same epoch. Then a shell must
        not repeat a report.
        """
        event = self._last_reports.get(markers.transactional_id)
        if event is not None and (event.producer_id, event.epoch) != (
            markers.producer_id,
            markers.epoch,
        ):
            self._driver.handle(msgspec.structs.replace(event, at_ms=self._clock.now_ms()))

    def _flush_outputs(self) -> None:
        super()._flush_outputs()
        shard = self._driver.shard
        if shard is not None and self.owner.world.has_invariant_checks:
            check_shard(shard)


class _RecordedStore:
    """The store of a shard; it records decisions, and dies at planned crash points."""

    def __init__(self, store: StateStore, owner: BrokerShell) -> None:
        self._store = store
        self._owner = owner
        self._world = owner.world
        self._incarnation = 0
        self._known: dict[str, TransactionRecord] = {}  # the last record of each id
        # ids and epochs of the producers whose transactions InitProducerId requests wait for
        self._awaited = set[tuple[int, int]]()

    @property
    def epoch(self) -> int | None:
        """The epoch of the current ownership."""
        return self._store.epoch

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self._store.producer_state

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to load."""
        store: Any = self._store
        return bool(store.is_empty)

    def may_answer(self) -> bool:
        """True if no other broker can own the shard now."""
        return self._store.may_answer()

    async def prepare_read(self) -> ContentReader:
        """Return a function that reads the content."""
        return await self._store.prepare_read()

    async def reopen(self) -> None:
        """Open the log again."""
        await self._store.reopen()

    def on_loaded(self, shard: TransactionShard) -> None:
        """Record the decisions in a shard: they are durable, but maybe not acknowledged."""
        self._known = {name: one.record for name, one in shard.transactions.items()}
        self._record_decisions(
            [one.record for one in shard.transactions.values() if one.record.state in PREPARED]
        )

    def on_discarded(self) -> None:
        """Ignore the results of all appends so far."""
        self._incarnation += 1

    def note_awaited(self, record: TransactionRecord) -> None:
        """Note an abort for which an InitProducerId request waits."""
        if record.state is TransactionState.PREPARE_ABORT:
            self._awaited.add((record.producer_id, record.epoch))

    def append_first(self, records: Sequence[TransactionLogRecord], at_ms: int) -> None:
        """Append the records of a new world."""
        self._store.append(list(records), at_ms, lambda error: None, [len(records)])

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records, unless the process dies before or after."""
        self._check_changes(records)
        steps = [*records, *self._awaited_aborts(records)]
        owner = self._owner
        owner.pass_crash_point(steps, is_stored=False)
        self._record_attempts(records)
        completions = self._record_completions(records)
        incarnation = self._incarnation

        def told(error: ErrorCode) -> None:
            if incarnation == self._incarnation and not error:
                for serial in completions:
                    self._world.append_history(
                        history.CompletionDurable(at_ms=self._world.now_ms, serial=serial)
                    )
                self._record_decisions(records)
                owner.pass_crash_point(steps, is_stored=True)
            stored(error)

        self._store.append(records, at_ms, told, event_ends)

    def _awaited_aborts(self, records: list[Any]) -> list[AwaitedAbort]:
        return [
            AwaitedAbort(record.state)
            for record in records
            if isinstance(record, TransactionRecord)
            and (record.producer_id, record.epoch) in self._awaited
        ]

    def _record_attempts(self, records: list[Any]) -> None:
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

    def _record_decisions(self, records: Sequence[Any]) -> None:
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

    def _record_completions(self, records: list[Any]) -> list[int]:
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

    def _check_changes(self, records: list[Any]) -> None:
        for record in records:
            before = self._known.pop(record.transactional_id, None)
            if isinstance(record, TransactionRecord):
                self._known[record.transactional_id] = record
                if before is not None:
                    check_change(before, record)
            else:
                self._world.append_history(
                    history.TransactionalIdExpired(
                        at_ms=self._world.now_ms,
                        wall_ms=self._owner.wall_ms,
                        transactional_id=record.transactional_id,
                        changed_ms=None if before is None else before.updated_ms,
                    )
                )


class FaultyMarkerWriter(MarkerWriter):
    """A marker writer with delays, held partitions, crash points and pauses."""

    owner: ClassVar[BrokerShell]

    def write(self, order: MarkerOrder, begin: int = 0) -> None:
        """Write the markers of an order; a report about an earlier one is repeated before."""
        host = getattr(order, "_host", None)
        if isinstance(host, RecordedTransactionHost) and not begin:
            host.repeat_report(order.markers)
        super().write(order, begin)

    def append(self, order: MarkerOrder, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker of an order after a random delay."""
        world = self.owner.world
        longest_ms = 0 if world.is_healed else world.options.marker_delay_max_ms
        if longest_ms:
            delay_ms = world.broker_rng.randrange(longest_ms + 1)
            self._loop.call_later(delay_ms / 1000, self._append, order, where, done)
        else:
            self._append(order, where, done)

    def _append(self, order: MarkerOrder, where: TopicPartition, done: MarkerDone) -> None:
        if not order.is_current:
            return
        owner, world = self.owner, self.owner.world
        held_ms = world.marker_holds.get(where, 0) - world.now_ms
        if held_ms > 0:
            self._loop.call_later(held_ms / 1000, self._append, order, where, done)
            return
        owner.pass_crash_point([order.markers], is_stored=False)
        if owner.is_remote(where) and owner.hit_marker_pause():
            self._loop.call_soon(self._append, order, where, done)
            return
        markers = order.markers
        marker = history.SimMarker(
            markers.producer_id,
            markers.epoch,
            order.coordinator_epoch,
            markers.is_commit,
            markers.version,
        )

        def told(error: ErrorCode) -> None:
            if order.is_current and not error:
                world.written_markers.append((where, marker))
            if order.is_current and is_settled(error):
                owner.pass_crash_point([order.markers], is_stored=True)
            done(error)

        super().append(order, where, told)


def delay_admissions(broker: BrokerShell, transactions: Any) -> None:
    """Delay the results of a coordinator's admissions while admissions are slow."""
    admit, world = transactions.admit, broker.world

    def delayed(*arguments: Any, done: Callable[[Any], None], **options: Any) -> None:
        if not world.is_healed and world.now_ms < world.slow_admissions_until_ms:
            delay_ms, told = world.broker_rng.choice(_ADMISSION_DELAYS_MS), done

            def done(errors: Any) -> None:
                broker.call_later(delay_ms, partial(broker.enter, partial(told, errors)))

        admit(*arguments, done=done, **options)

    transactions.admit = delayed


_ADMISSION_DELAYS_MS: Final = (0, 0, 0, 200, 1_500, REQUEST_TIMEOUT_MS + 2_500)
