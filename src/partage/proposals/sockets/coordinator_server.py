"""The shell of a coordinator: it serves the state machine on a listening socket."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from itertools import count
from random import SystemRandom
from typing import Any, Final

import msgspec

from partage.broker.clock import Clock
from partage.broker.net.descriptor_limit import raise_descriptor_limit
from partage.broker.net.memory_pool import MemoryPool
from partage.model.addresses import Address
from partage.proposals.machine import (
    ConnectionId,
    ConnectionLost,
    CoordinatorMachine,
    CoordinatorOutcome,
    Event,
    MessageReceived,
    TimerFired,
)
from partage.proposals.sockets.codec import Codec
from partage.proposals.sockets.frame_connection import FrameConnection
from partage.proposals.sockets.record_store import RecordStore
from partage.runtime.timer_scheduler import TimerScheduler
from partage.runtime.timers import TimerQueue
from partage.wire.primitives import MalformedError

log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_IDLE_CHECKS: Final = 4  # in the maximum idle time
_TIMERS_PER_TURN: Final = 256
#: A connection whose large frame or response makes no progress for this time is closed, if others
#: wait for its memory.
_STALLED_MAX_S: Final = 10.0


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a `CoordinatorServer`.

    Attributes:
        connections_max: Further connections are closed. The limit of file descriptors may be lower.
        outcomes_max: Events whose effects wait for the store. With more, the server reads nothing.
        idle_max_s: A connection without a frame for this time is closed, unless a request of it
            waits for its response.
        frames_bytes_max: The memory of all frames above 64 KiB together, until they are handled.
        unsent_bytes_max: Responses that slow peers have not read. With more, further responses wait
            and are not encoded yet.
    """

    connections_max: int = 10_000
    frames_bytes_max: int = 256 << 20
    unsent_bytes_max: int = 256 << 20
    outcomes_max: int = 1_000
    idle_max_s: float = 600.0


class CoordinatorServer:
    """Serves a coordinator.

    Records are durable before the messages of their event are sent, and messages keep the order of
    their events. All methods belong to one event loop.

    Args:
        machine: The coordinator.
        new_codec: Returns the codec of a new connection.
        store: The store of the records.
        on_fatal: Called once if the machine or the store has failed. The server does nothing then.
        may_act: False while another coordinator may be in charge: no message is sent and no timer
            fires. Call `resume` when it becomes True.
        on_outcome: Called with each outcome, for its log lines.
        limits: The limits.
    """

    def __init__(
        self,
        machine: CoordinatorMachine,
        new_codec: Callable[[], Codec],
        store: RecordStore,
        on_fatal: Callable[[Exception], None],
        *,
        may_act: Callable[[], bool] = lambda: True,
        on_outcome: Callable[[Any], None] = lambda outcome: None,
        limits: ServerLimits | None = None,
    ) -> None:
        self.machine = machine
        self._new_codec = new_codec
        self._store = store
        self._on_fatal = on_fatal
        self._may_act = may_act
        self._on_outcome = on_outcome
        self._limits = limits or ServerLimits()
        largest_frame = new_codec().frame_bytes_max
        self._pool = MemoryPool(max(self._limits.frames_bytes_max, largest_frame))
        self._connections_max = self._limits.connections_max
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._random = SystemRandom()
        self._numbers = count(1)
        self._connections: dict[ConnectionId, FrameConnection] = {}
        self._connection_ids: dict[FrameConnection, ConnectionId] = {}
        self._timers: TimerQueue[Hashable] = TimerQueue()
        self._scheduler = TimerScheduler(self)
        # The effects of events: those whose records are not written, and those that may be sent.
        self._unwritten: deque[CoordinatorOutcome[Any, Any]] = deque()
        self._durable: deque[CoordinatorOutcome[Any, Any]] = deque()
        self._written_now = 0
        self._sent_count = 0  # messages of the first durable outcome that were sent
        self._slow_peers: dict[FrameConnection, tuple[int, float]] = {}  # unsent bytes, since when
        self._unsent_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._is_suspended = False
        self._is_full = False
        self._is_closing = False
        self._has_failed = False
        self._listener: asyncio.Server | None = None
        self._idle_check: asyncio.TimerHandle | None = None

    # Sockets

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections; return the bound address and port.

        It raises the limit of file descriptors of the process: each connection needs one.

        Raises:
            OSError: The address is in use, or not one of this machine.
        """
        by_system = raise_descriptor_limit()
        if by_system is not None:
            self._connections_max = min(self._limits.connections_max, by_system[1])
        self._listener = await self._loop.create_server(self._accept, host, port, backlog=_BACKLOG)
        self._check_idle()
        bound = self._listener.sockets[0].getsockname()
        return Address(bound[0], bound[1])

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def _accept(self) -> FrameConnection:
        return FrameConnection(
            self._new_codec(),
            on_opened=self._add_connection,
            on_frame=self._on_frame,
            on_lost=self._on_lost,
            on_drained=self._on_drained,
            pool=self._pool,
        )

    def _add_connection(self, connection: FrameConnection) -> None:
        if self._is_closing or self._has_failed:
            connection.abort()
            return
        if len(self._connections) >= self._connections_max:
            if not self._is_full:  # rejected members try again, and would fill the log
                log.error(
                    "rejected a connection of %s: %d connections are open; raise the limit of file "
                    "descriptors (ulimit -n) if this is less than %d",
                    connection.peer,
                    self._connections_max,
                    self._limits.connections_max,
                )
            self._is_full = True
            connection.abort()
            return
        self._is_full = False
        number = ConnectionId(next(self._numbers))
        self._connections[number] = connection
        self._connection_ids[connection] = number
        connection.suspend(is_suspended=self._is_suspended)

    def _on_frame(self, connection: FrameConnection, frame: bytes) -> None:
        number = self._connection_ids.get(connection)
        if number is None:
            return
        try:
            message = connection.codec.decode(frame)
        except MalformedError as error:
            self._on_malformed(connection, number, frame, error)
            return
        self.handle(
            MessageReceived(
                at_ms=self.now_ms(),
                connection=number,
                message=message,
                draw=self._random.getrandbits(64),
            )
        )

    def _on_malformed(
        self,
        connection: FrameConnection,
        number: ConnectionId,
        frame: bytes,
        error: MalformedError,
    ) -> None:
        log.warning("invalid frame of %s: %s", connection.peer, error)
        response = connection.codec.error_response(frame)
        if response is None:
            connection.lose(str(error))
            return
        outcome: CoordinatorOutcome[Any, Any] = CoordinatorOutcome(self.now_ms())
        outcome.send(number, response)
        self._queue(outcome)

    def _on_lost(self, connection: FrameConnection, reason: str) -> None:
        number = self._forget(connection)
        if number is not None:
            log.info("lost the connection of %s: %s", connection.peer, reason)
            self.handle(ConnectionLost(at_ms=self.now_ms(), connection=number))

    def _forget(self, connection: FrameConnection) -> ConnectionId | None:
        number = self._connection_ids.pop(connection, None)
        if number is not None:
            del self._connections[number]
        return number

    def _check_idle(self) -> None:
        idle_max_s, now_s = self._limits.idle_max_s, self._loop.time()
        for connection in list(self._connection_ids):
            is_idle = now_s - connection.last_frame_s > idle_max_s
            if is_idle and not connection.codec.has_open_request:
                connection.lose("it was idle")
            elif (
                self._pool.has_waiters
                and connection.has_partial_frame
                and now_s - connection.last_data_s > _STALLED_MAX_S
            ):
                connection.lose("its frame made no progress, and others wait for its memory")
        if self._unsent_bytes >= self._limits.unsent_bytes_max:
            for connection, (_, since_s) in list(self._slow_peers.items()):
                if now_s - since_s > _STALLED_MAX_S:
                    connection.lose("its peer does not read, and others wait for its memory")
        interval_s = min(idle_max_s / _IDLE_CHECKS, _STALLED_MAX_S / 2)
        self._idle_check = self._loop.call_later(interval_s, self._check_idle)

    # Events

    def handle(self, event: Event) -> None:
        """Hand an event to the machine and apply its effects."""
        if self._has_failed or self._is_closing:
            return
        try:
            outcome = self.machine.handle(event)
        except Exception as error:  # a bug: the state may be inconsistent
            log.exception("the coordinator failed on %s", type(event).__name__)
            self._fail(error)
            return
        for key, deadline_ms in outcome.timers:
            self._timers.set(key, deadline_ms)
        self._scheduler.schedule(self._timers.wake_at_ms())
        self._on_outcome(outcome)
        self._queue(outcome)

    def _queue(self, outcome: CoordinatorOutcome[Any, Any]) -> None:
        if outcome.records or outcome.sends or outcome.closes:
            self._unwritten.append(outcome)
            self._advance()

    def _fail(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._scheduler.cancel()
            self._on_fatal(error)

    # Effects

    def resume(self) -> None:
        """Send what waits and fire timers: ``may_act`` is True again."""
        self._scheduler.schedule(self._timers.wake_at_ms())
        self._advance()

    def discard_effects(self) -> None:
        """Drop all effects that wait, and close all connections.

        Another coordinator is in charge, so records can no longer be stored. The machine must drop
        its state, too.
        """
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None
        self._unwritten.clear()
        self._durable.clear()
        self._written_now = self._sent_count = 0
        for connection in list(self._connection_ids):
            self._forget(connection)
            connection.close()
        self._update_suspension()

    def _advance(self) -> None:
        """Write records, and send what is durable."""
        if self._has_failed:
            return
        if self._writer is None:
            while self._unwritten and not self._unwritten[0].records:
                self._durable.append(self._unwritten.popleft())
            if self._unwritten:
                batch = list(self._unwritten)
                self._unwritten.clear()
                self._written_now = len(batch)
                self._writer = self._loop.create_task(self._write(batch))
        while self._durable and self._may_act() and self._apply(self._durable[0]):
            self._durable.popleft()
        self._update_suspension()

    async def _write(self, batch: list[CoordinatorOutcome[Any, Any]]) -> None:
        try:
            await self._store.append([each for outcome in batch for each in outcome.records])
        except Exception as error:
            log.exception("the records of the coordinator were not stored")
            self._fail(error)
            return
        self._durable.extend(batch)
        self._writer = None
        self._written_now = 0
        self._advance()

    def _apply(self, outcome: CoordinatorOutcome[Any, Any]) -> bool:
        """Send the messages of an outcome, and close connections.

        Returns:
            False if some messages must wait until slow peers have read earlier ones.
        """
        while self._sent_count < len(outcome.sends):
            if self._unsent_bytes >= self._limits.unsent_bytes_max:
                return False
            number, message = outcome.sends[self._sent_count]
            self._sent_count += 1
            connection = self._connections.get(number)
            if connection is not None:
                connection.send(message)
                self._count_unsent(connection)
        self._sent_count = 0
        for number in outcome.closes:
            connection = self._connections.get(number)
            if connection is not None:
                self._forget(connection)
                connection.close()
        return True

    def _count_unsent(self, connection: FrameConnection) -> None:
        if connection.is_peer_slow:
            before, since_s = self._slow_peers.get(connection, (0, self._loop.time()))
            unsent_bytes = connection.unsent_bytes
            self._slow_peers[connection] = unsent_bytes, since_s
            self._unsent_bytes += unsent_bytes - before

    def _on_drained(self, connection: FrameConnection) -> None:
        before, _ = self._slow_peers.pop(connection, (0, 0.0))
        was_full = self._unsent_bytes >= self._limits.unsent_bytes_max
        self._unsent_bytes -= before
        if was_full and self._unsent_bytes < self._limits.unsent_bytes_max:
            self._loop.call_soon(self._advance)

    def _update_suspension(self) -> None:
        """Read nothing while too many effects wait, and continue at half of the limit."""
        waiting = len(self._unwritten) + self._written_now + len(self._durable)
        limit = self._limits.outcomes_max
        is_suspended = waiting > (limit // 2 if self._is_suspended else limit)
        if is_suspended is not self._is_suspended:
            self._is_suspended = is_suspended
            for connection in list(self._connection_ids):
                connection.suspend(is_suspended=is_suspended)
            self._scheduler.schedule(self._timers.wake_at_ms())

    async def flush(self) -> None:
        """Return when all records so far are durable, or the server has failed."""
        # At most two writes have them: the current one, and the next one has all that waits.
        for _ in range(2):
            writer = self._writer
            if writer is None or self._has_failed:
                return
            await asyncio.wait([writer])

    async def close(self) -> None:
        """Stop to accept connections and to read, store all records, and close all connections."""
        if self._listener is not None:
            self._listener.close()
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._scheduler.cancel()
        self._is_closing = True  # no event is handled from now on
        await self.flush()
        self._has_failed = True
        writer = self._writer
        self.discard_effects()
        if writer is not None:
            with suppress(asyncio.CancelledError):
                await writer

    # Implementation of `partage.runtime.timer_scheduler.TimerShell`

    def now_ms(self) -> int:
        """Return the time of events, in ms."""
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self._loop.call_later(delay_ms / 1000, call)

    def call_after_input(self, call: Callable[[], None]) -> None:
        """Call a function after the input that has arrived: the next turn of the loop reads it."""
        self._loop.call_soon(self._loop.call_soon, call)

    def may_fire(self) -> bool:
        """False while another coordinator may be in charge, or nothing is read."""
        return self._may_act() and not self._is_suspended and not self._has_failed

    def fire_timers(self, now_ms: int, until_ms: int) -> None:
        """Fire due timers, at most as many as fit into one turn of the loop."""
        for fired, key in enumerate(self._timers.pop_due(until_ms), 1):
            self.handle(TimerFired(at_ms=now_ms, key=key, draw=self._random.getrandbits(64)))
            if fired == _TIMERS_PER_TURN:
                break
        self._scheduler.schedule(self._timers.wake_at_ms())

    def on_stall(self, stood_ms: int) -> None:
        """Log a stall, during which nothing was read or sent."""
        log.info("the coordinator was stalled, or not in charge for sure, for %d ms", stood_ms)
        self._scheduler.schedule(self._timers.wake_at_ms())
