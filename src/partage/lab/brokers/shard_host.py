"""Shard host of a world: a shell on the virtual clock around the driver and its store.

It corresponds to `partage.broker.coordination.shard_host` on asyncio. It hands events to the
driver, records to the store, and replies to clients once their records are durable. Each process
creates new hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from partage.bridge.api_adapter import deliver
from partage.coordinator import invariants
from partage.coordinator.events import CompleteTransaction, Event, Ticket
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.coordinator.records import Record, TransactionMarker
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.group_actions import ActionResult, SimGroupActions
from partage.lab.brokers.server_connection import ServedRequest
from partage.lab.brokers.shell import BrokerShell
from partage.lab.coverage import ELSEWHERE, LOADING, group_coverage_keys
from partage.lab.offset_log import LogChange, OffsetLogModel
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.runtime.driver import Driver
from partage.runtime.timer_scheduler import TimerScheduler
from partage.store.record_formats import decode_record
from partage.store.shard_log import encode_records, replay
from partage.wire.records.decoder import decode_pairs
from partage.wire.types import Buffer

_TIMERS_PER_TURN: Final = 256  # the same limit as in the broker's event loop


class StateStore(Protocol):
    """Store of one shard's state, as its host sees it."""

    @property
    def epoch(self) -> int:
        """Increases whenever a broker takes the shard over."""

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records; complete only if the shard is loaded."""

    def load(self, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        """Read all record batches, retrying until it succeeds or the process dies."""

    def append(self, batches: Sequence[bytes], done: Callable[[ErrorCode], None]) -> bool:
        """Append batches.

        Args:
            batches: Encoded record batches.
            done: Called when the last batch is durable, or with an error.

        Returns:
            False if the batches are rejected at once.
        """

    def reopen(self, opened: Callable[[], None]) -> None:
        """Open the store again after a failure."""

    def may_answer(self) -> bool:
        """Return True if no other broker can own the shard by now."""


class _CompletionTicket:
    """The ticket of a marker; equal only to itself. ``done`` is called with its error."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self.done = done


class ObservedDriver(Driver):
    """A driver that reports each event before it handles it."""

    def __init__(self, sees: Callable[[Event], None]) -> None:
        super().__init__()
        self._sees = sees

    def handle(self, event: Event) -> None:
        """Report the event, then handle it."""
        self._sees(event)
        super().handle(event)


class SimShardHost:
    """The host of one shard in one broker process."""

    def __init__(self, broker: BrokerShell, store: StateStore, shard: int = 0) -> None:
        self.driver = ObservedDriver(self._count_coverage)
        self.is_closed = False  # the process has ended
        self.broker = broker
        self._world = broker.world
        self._store = store
        self._entry_fields = {"broker": broker.broker_id, "shard": shard}
        self._load_attempt = 0
        self._is_flushing = False
        self._is_resigned = False
        self._alarm = TimerScheduler(self)
        self._expired: list[GroupEvent] = []  # expirations that are not yet in the history
        self._actions = SimGroupActions(broker)
        # decodes the log with transactions; None in worlds without them
        self._model: OffsetLogModel | None = None

    # Loading and attempt

    def schedule_load(self) -> None:
        """Load the shard after a random delay. Meanwhile requests fail with a loading error."""
        attempt = self._load_attempt

        def load() -> None:
            if attempt == self._load_attempt:
                self._store.load(loaded)

        def loaded(content: Sequence[Buffer]) -> None:
            if attempt == self._load_attempt:
                self._loaded(content)

        self.broker.call_later(self._world.broker_rng.choice((0, 5, 300)), load)

    def _loaded(self, content: Sequence[Buffer]) -> None:
        world = self._world
        shard = replay(content, world.settings)
        if world.options.transactional_producers:
            self._model = OffsetLogModel()
            state = dict(pair for pair, _ in self._model.apply(content))
        else:
            state = {key: value for key, value in decode_pairs(content) if key is not None}
        epoch = self._store.epoch
        world.append_history(
            history.ShardLoaded(at_ms=world.now_ms, **self._entry_fields, epoch=epoch, state=state)
        )
        if world.options.consumer_members:
            shard.handle(world.consumer_topics.to_event(world.now_ms))
        self.driver.activate(shard, world.now_ms)
        self.flush()

    def reload(self) -> None:
        """Drop the shard after a failure of its log or of the shard itself, and load it again."""
        world = self._world
        world.append_history(history.LogWriteFailed(at_ms=world.now_ms, **self._entry_fields))
        self._reset_load()
        self.driver.fail()
        self.flush()
        attempt = self._load_attempt

        def opened() -> None:
            if attempt == self._load_attempt:
                self.schedule_load()

        self._store.reopen(opened)

    def resign(self) -> None:
        """Drop the shard because another broker may own it, and redirect its clients."""
        world = self._world
        world.append_history(history.ShardResigned(at_ms=world.now_ms, **self._entry_fields))
        self._reset_load()
        self.driver.resign()
        self._is_resigned = True
        self.flush()

    def start_loading(self) -> None:
        """Prepare to load the shard."""
        world, epoch = self._world, self._store.epoch
        world.append_history(
            history.ShardAcquired(at_ms=world.now_ms, **self._entry_fields, epoch=epoch)
        )
        self._is_resigned = False
        self.driver.start_loading()

    def _reset_load(self) -> None:
        """Invalidate pending loads, writes and timers. The caller tells the driver the reason."""
        self._load_attempt += 1
        self._is_flushing = False
        self._expired.clear()
        self._alarm.cancel()

    @property
    def shard(self) -> Shard | None:
        """The shard, if it is loaded."""
        return self.driver.shard

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records; complete only if the shard is loaded."""
        return self._store.producer_state

    @property
    def is_caught_up(self) -> bool:
        """True if all state so far is durable."""
        return self.driver.is_durable(self.driver.applied_mark)

    def open_tickets(self) -> set[Any]:
        """Return the tickets of the requests without a reply."""
        return set(cast(Any, self.driver)._open_requests)

    # Events

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append the marker of a transaction, as `partage.broker.coordination.shard_host` does."""
        if self.is_closed:
            return
        self.handle(
            CompleteTransaction(
                at_ms=self._world.now_ms,
                reply_to=Ticket(_CompletionTicket(done)),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                is_commit=is_commit,
            )
        )
        self.flush()

    def _count_coverage(self, event: Event) -> None:
        absence = ELSEWHERE if self._is_resigned else LOADING
        for key in group_coverage_keys(self.driver.shard, absence, event):
            self._world.group_coverage[key] += 1

    def handle(self, event: Event) -> None:
        """Hand an event to the driver. Call `flush` after the last event."""
        self.driver.handle(event)

    def flush(self) -> None:
        """Send durable replies, schedule the append of new records and set the next timer."""
        driver = self.driver
        while driver.actions:
            self._run_actions()
        if driver.shard is not None and self._world.has_invariant_checks:
            invariants.check(driver.shard, driver.timers.armed)
        while driver.ready and (self._is_resigned or self._store.may_answer()):
            for ticket, reply in driver.pop_ready(128):
                if isinstance(ticket, _CompletionTicket):
                    ticket.done(cast(Any, reply).error)
                    continue
                call = deliver(ticket, reply)
                if call is not None:
                    inbound = cast(ServedRequest, call)
                    inbound.connection.respond(inbound, inbound.encode_response())
        if self.is_closed:  # the process died at a crash point of a marker
            return
        if driver.unsent and not self._is_flushing:
            self._is_flushing = True
            attempt = self._load_attempt
            self.broker.call_later(0, lambda: self._append_unsent(attempt))
        emitted = driver.pop_group_events()
        self._expired += [each for each in emitted if each.event_type is GroupEventType.EXPIRED]
        # Only the owner reports expirations. They wait until the lease is valid again.
        if self._expired and self._store.may_answer():
            expired, self._expired = self._expired, []
            for event in expired:
                self._world.append_history(
                    history.MemberExpired(
                        at_ms=event.at_ms,
                        broker=self.broker.broker_id,
                        group_id=event.group_id,
                        member_id=event.member_id or "",
                        reason=event.reason,
                    )
                )
        self._alarm.schedule(driver.timers.wake_at_ms())

    # Actions of consumer groups

    def _run_actions(self) -> None:
        attempt, is_inline = self._load_attempt, True

        def done(result: ActionResult) -> None:
            if attempt == self._load_attempt and not self.is_closed:
                self.handle(result)
                if not is_inline:
                    self.flush()

        for action in self.driver.pop_actions():
            self._actions.run(action, done)
        is_inline = False

    def refresh_topics(self) -> None:
        """Report the newest topics to the shard if it is loaded."""
        if self.driver.shard is not None and not self.is_closed:
            self.handle(self._world.consumer_topics.to_event(self._world.now_ms))
            self.flush()

    # Log

    def _append_unsent(self, attempt: int) -> None:
        """Append the records of this moment, as the broker does after an event-loop turn."""
        if attempt != self._load_attempt:
            return
        self._is_flushing = False
        records, mark, event_ends = self.driver.pop_unsent()
        if records:
            self._append(records, mark, event_ends)

    def _append(self, records: list[Record], mark: int, event_ends: list[int]) -> None:
        world = self._world
        batches = encode_records(records, world.now_ms, event_ends=event_ends)
        if self.broker.hit_crash_point(records, is_stored=False):
            return
        pairs, written = self._changes(batches)
        world.append_history(
            history.RecordsAppended(
                at_ms=world.now_ms, **self._entry_fields, records=written, pairs=pairs
            )
        )
        attempt = self._load_attempt
        shard_epoch = self._store.epoch

        def done(error: ErrorCode) -> None:
            if attempt != self._load_attempt or self.is_closed:
                return
            if error:
                self.reload()
                return
            world.append_history(
                history.RecordsDurable(at_ms=world.now_ms, **self._entry_fields, count=len(pairs))
            )
            self._record_markers(records, shard_epoch)
            if not self.broker.hit_crash_point(records, is_stored=True):
                self.driver.on_durable(mark)
                self.flush()

        if not self._store.append(
            batches, lambda error: self.broker.when_awake(lambda: done(error))
        ):
            self.reload()

    def _record_markers(self, records: list[Record], shard_epoch: int) -> None:
        for record in records:
            if isinstance(record, TransactionMarker):
                self._world.append_history(
                    history.OffsetsMarkerDurable(
                        at_ms=self._world.now_ms,
                        **self._entry_fields,
                        shard_epoch=shard_epoch,
                        producer_id=record.producer_id,
                        producer_epoch=record.producer_epoch,
                        coordinator_epoch=record.coordinator_epoch,
                    )
                )

    def _changes(
        self, batches: list[bytes]
    ) -> tuple[tuple[tuple[bytes, bytes | None], ...], tuple[LogChange, ...]]:
        """Return the encoded pairs of batches, and the records that they decode to."""
        changes: list[tuple[tuple[bytes, bytes | None], LogChange | None]]
        if self._model is None:
            pairs = ((key or b"", value) for key, value in decode_pairs(batches))
            changes = [(pair, decode_record(*pair)) for pair in pairs]
        else:
            changes = list(self._model.apply(batches))
        written = tuple(change for _, change in changes if change is not None)
        return tuple(pair for pair, _ in changes), written

    # Interface of the timer scheduler: see `partage.runtime.timer_scheduler.TimerShell`

    def now_ms(self) -> int:
        """Return the time, in ms since the epoch."""
        return self._world.now_ms

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, if the process still lives then."""
        self.broker.call_later(delay_ms, call)

    def call_after_input(self, call: Callable[[], None]) -> None:
        """Call after the input of this moment was handled."""
        self.broker.call_later(0, call)

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
