"""Host of a shard of any state machine: events to its driver, records to its log, replies out."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Generic, TypeVar

from partage.broker.clock import Clock
from partage.broker.coordination.shard_timers import ShardTimers
from partage.broker.coordination.state_store import ContentReader, StateStore, StoredCallback
from partage.broker.net.turn_limiter import TurnLimiter
from partage.log.errors import DamagedLogError
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.runtime.shard_driver import ShardDriver
from partage.wire.primitives import MalformedError

log = logging.getLogger(__name__)

#: Replies that are sent in one turn of the loop, if thousands are ready at once.
_REPLIES_PER_TURN: Final = 128
#: Records that are encoded in one turn of the loop, if a turn or an event has more of them.
_RECORDS_PER_TURN: Final = 1_000
_RELOAD_AFTER_S: Final = 0.5
_RELOAD_AFTER_MAX_S: Final = 10.0

DriverT = TypeVar("DriverT", bound=ShardDriver[Any, Any, Any])
#: Reads a shard's log in a thread; returns a function that activates the shard on the loop.
ShardReader = Callable[[ContentReader], Callable[[], None]]


class BaseShardHost(ABC, Generic[DriverT]):
    """Runs one shard, through loading and failures of its log.

    Args:
        name: the shard's name in log lines.
        store: the shard's log.
        clock: the broker's clock.
        driver: the driver of the shard's state machine.
        loaders: threads for loading; by default the loop's pool.
        turns: the requests that wait for their turns, and that timers must not overtake.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        clock: Clock,
        driver: DriverT,
        loaders: Executor | None = None,
        turns: TurnLimiter | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._loaders = loaders
        self._loop = asyncio.get_running_loop()
        self._driver = driver
        self._incarnation = 0  # incremented when the log fails: results of earlier work are ignored
        self._loading: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        self._is_append_scheduled = False
        self._unfinished_append: _Append | None = None
        self._is_sending_replies = False
        self._timers = ShardTimers(
            name, clock, store, self._driver, self._fail, self._flush_outputs, turns
        )
        self._has_failed = False  # since the store was opened
        self._is_resigned = False
        self._is_closed = False
        self._progress: asyncio.Future[None] | None = None  # resolved at the next change

    # What a subclass adds for its state machine.

    @abstractmethod
    def load(self, topics: frozenset[str] | None = None) -> None:
        """Start loading; until it is done, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Args:
            topics: at a start or takeover, the existing topics.
        """

    @abstractmethod
    def _deliver(self, ticket: Any, reply: Any) -> None:
        """Send a reply."""

    def _encode_ahead(self, record: Any) -> Any:
        """Return a record in a form that the store encodes in less time; by default unchanged."""
        return record

    def _flush_notices(self) -> None:
        """Handle the outputs of the driver that are neither records nor replies."""

    def _drop_notices(self) -> None:
        """Drop outputs of the discarded state."""

    # Loading.

    def _start_loading(self, read_shard: ShardReader) -> None:
        self._is_resigned = False
        self._driver.start_loading()
        self._loading = self._loop.create_task(self._load(read_shard))

    def resign(self) -> None:
        """Drop the loaded state until `load`: another broker owns the shard."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._discard_state()
        self._has_failed = False  # the next ownership has a new log
        self._driver.resign()
        self._is_resigned = True
        self._flush_outputs()

    def flush(self) -> None:
        """Continue after a change on which replies and timers depend, such as a renewed lease."""
        self._flush_outputs()
        self._timers.schedule()

    async def _load(self, read_shard: ShardReader) -> None:
        delay_s = _RELOAD_AFTER_S
        while not self._is_closed:
            try:
                if self._has_failed:
                    await self._store.reopen()
                read = await self._store.prepare_read()
                activate = await self._loop.run_in_executor(self._loaders, read_shard, read)
                activate()
            except (OSError, DamagedLogError, MalformedError) as error:
                log.error("loading of %s failed, retrying: %s", self._name, error)
            except Exception:  # a bug; retry, it may depend on the state
                log.exception("loading of %s failed, retrying", self._name)
                self._driver.fail()  # the driver may be partly activated
            else:
                self._flush_outputs()
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RELOAD_AFTER_MAX_S)

    async def wait_loaded(self) -> None:
        """Return once loading has ended."""
        if self._loading is not None:
            await self._loading

    async def wait_durable(self) -> None:
        """Return once everything received so far is durable, or another broker owns the shard.

        It waits through loading and failures of the log.
        """
        life, mark = -1, 0
        while not (self._is_resigned or self._is_closed):
            if self._driver.shard is not None:
                # a reloaded shard has only durable state; wait for what follows
                if life != self._incarnation:
                    life, mark = self._incarnation, self._driver.applied_mark
                if self._driver.is_durable(mark):
                    return
            self._progress = self._progress or self._loop.create_future()
            await asyncio.shield(self._progress)

    @property
    def is_loaded(self) -> bool:
        """True if the shard is loaded."""
        return self._driver.shard is not None

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records; complete only if the shard is loaded."""
        return self._store.producer_state

    def call_when_durable(self, done: Callable[[bool], None]) -> None:
        """Call a function with True once all current state is durable, or with False once the state
        was discarded.
        """
        task = self._loop.create_task(self._report_durable(done))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report_durable(self, done: Callable[[bool], None]) -> None:
        life, mark = self._incarnation, self._driver.applied_mark
        while life == self._incarnation and not self._is_closed:
            if self._driver.is_durable(mark):
                done(True)
                return
            self._progress = self._progress or self._loop.create_future()
            await asyncio.shield(self._progress)
        done(False)

    def close(self) -> None:
        """Stop handling events."""
        self._is_closed = True
        self._notify_progress()
        if self._loading is not None:
            self._loading.cancel()
        self._timers.cancel()

    def _fail(self, error: BaseException) -> None:
        log.error("reloading %s after a failure: %s", self._name, error)
        self._discard_state()
        self._driver.fail()
        self.load()
        self._flush_outputs()

    def _discard_state(self) -> None:
        """Ignore all work in progress; the caller must tell the driver why."""
        self._incarnation += 1
        self._has_failed = True
        self._is_append_scheduled = False
        self._unfinished_append = None
        self._drop_notices()
        self._timers.cancel()

    def unload(self) -> None:
        """Drop the loaded state until `load`; open requests get COORDINATOR_NOT_AVAILABLE."""
        if self._loading is not None:
            self._loading.cancel()
        self._discard_state()
        self._driver.fail()
        self._flush_outputs()

    def handle(self, event: Any) -> None:
        """Pass an event to the state machine."""
        try:
            self._driver.handle(event)
        except Exception as error:
            self._on_handler_failed(event, error)
        self._flush_outputs()

    def _on_handler_failed(self, event: Any, error: Exception) -> None:
        """Reload the shard after a bug in its state machine: the durable state is correct."""
        log.exception("event handler of %s failed: event=%s", self._name, type(event).__name__)
        self._fail(error)

    def _flush_outputs(self) -> None:
        """Send replies, schedule the append, and schedule the next timer."""
        driver = self._driver
        if driver.ready and not self._is_sending_replies:
            self._send_replies()
        if driver.unsent and not self._is_append_scheduled:
            self._is_append_scheduled = True
            self._loop.call_soon(self._append_unsent, self._incarnation)
        self._flush_notices()
        if driver.timers.is_wake_changed:
            self._timers.schedule()
        if self._progress is not None:
            self._notify_progress()

    def _notify_progress(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None

    @property
    def is_authoritative(self) -> bool:
        """True if the shard is loaded and no other broker can own it now."""
        return self._driver.shard is not None and self._store.may_answer()

    def _may_send(self) -> bool:
        """True if no other broker can own the shard, or if all replies are errors (resigned)."""
        return self._is_resigned or self._store.may_answer()

    def _send_replies(self) -> None:
        """Send ready replies in order; a reply may start the next request of its connection."""
        if not self._may_send():
            self._is_sending_replies = False
            return
        self._is_sending_replies = True
        driver, left = self._driver, _REPLIES_PER_TURN
        while left and driver.ready:
            replies = driver.pop_ready(left)
            left -= len(replies)
            for ticket, reply in replies:
                self._deliver(ticket, reply)
        if driver.ready:
            self._loop.call_soon(self._send_replies)
        else:
            self._is_sending_replies = False

    def _append_unsent(self, life: int) -> None:
        """Append the records of this turn of the loop, those of one event atomically.

        Later turns append the rest of very many records. An event with very many records is encoded
        in several turns, before it is appended in one.
        """
        if life != self._incarnation:
            return
        append = self._unfinished_append
        try:
            if append is None:
                append = _Append(*self._driver.pop_unsent(_RECORDS_PER_TURN))
            if append.encode(self._encode_ahead):
                self._unfinished_append = None
                self._append(append, life)
            else:
                self._unfinished_append = append
        except OSError as error:
            self._fail(error)
            return
        except Exception as error:  # a bug, for example a record that cannot be encoded
            log.exception("append to the log of %s failed", self._name)
            self._fail(error)
            return
        self._is_append_scheduled = self._unfinished_append is not None or bool(self._driver.unsent)
        if self._is_append_scheduled:
            self._loop.call_soon(self._append_unsent, life)

    def _append(self, append: _Append, life: int) -> None:
        if append.records:
            stored = self._append_callback(append.mark, life)
            self._store.append(append.records, self._clock.now_ms(), stored, append.event_ends)

    def _append_callback(self, mark: int, life: int) -> StoredCallback:
        def stored(error: ErrorCode) -> None:
            if life != self._incarnation or self._is_closed:
                return
            if error:
                self._fail(OSError(f"the append failed with {error.name}"))
            else:
                self._driver.on_durable(mark)
                self._flush_outputs()

        return stored


class _Append:
    """Records to append; very many are encoded ahead, in several turns of the loop."""

    def __init__(self, records: list[Any], mark: int, event_ends: list[int]) -> None:
        self.records = records
        self.mark = mark
        self.event_ends = event_ends
        self._encoded = 0

    def encode(self, encode_ahead: Callable[[Any], Any]) -> bool:
        """Encode some records if there are many; return True if the append can follow."""
        count = len(self.records)
        if count <= _RECORDS_PER_TURN:
            return True
        begin, end = self._encoded, self._encoded + _RECORDS_PER_TURN
        self.records[begin:end] = [encode_ahead(each) for each in self.records[begin:end]]
        self._encoded = end
        return end >= count
