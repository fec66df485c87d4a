"""A simulated ZooKeeper: sessions that take time, lose their connection, and expire.

`partage.store.memory` has the nodes. This module simulates the requests to them on the virtual
clock. Requests and responses are delayed; a cut loses them or delivers them late; the servers end a
session after its timeout without a sign of life. The client side corresponds to kazoo: it pings,
detects missing responses, reconnects, and then learns whether its session ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeVar

from partage.lab.environment.coroutines import SimFuture, WhenAwake
from partage.store.memory import MemorySession, MemoryZooKeeper
from partage.store.zookeeper import (
    ChangeCallback,
    Check,
    Create,
    Delete,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    SessionEndedError,
    ZNode,
)

T = TypeVar("T")

_Operations = Sequence[Operation]

#: Names of the consequences of ZooKeeper faults.
SESSION_EXPIRED: Final = "a_session_expires"
TRANSACTION_IN_DOUBT: Final = "a_transaction_is_in_doubt"
APPEND_REFUSED: Final = "zookeeper_refuses_an_append"

_TICK_MS: Final = 100
_CONNECTS_EVERY_MS: Final = 200
_LATE_MAX_MS: Final = 3_000
_REPORT_INTERVAL_MS: Final = 1_000  # half a tick; a session lasts at least two ticks


class ServerClock(Protocol):
    """The wall clock and the timers of the servers."""

    @property
    def now_ms(self) -> int:
        """The time in ms since the epoch."""

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after a delay."""


class ZooKeeper:
    """The ZooKeeper ensemble, as seen by clients.

    Attributes:
        on_fault: Called with consequences of faults.
        on_expired: Called with the id of a session that the leader ended.
    """

    def __init__(self, clock: ServerClock, rng: Random, delay_max_ms: int) -> None:
        self.on_fault: Callable[[str], None] = _ignore_fault
        self.on_expired: Callable[[int], None] = lambda session_id: None
        self.clock = clock
        self.nodes = MemoryZooKeeper()
        self._rng = rng
        self._delay_max_ms = delay_max_ms
        self._cuts: dict[str, int] = {}
        self._server_cuts: dict[
            str, int
        ] = {}  # end of the cut between a client's server and the leader
        self._stalls: dict[str, int] = {}  # end of the time without answers to a client
        self._refused_appends: dict[str, int] = {}  # number of appends to refuse, by client
        self._clients: dict[MemorySession, str] = {}
        self._sessions: dict[MemorySession, SimZkSession] = {}
        self._last_seen_ms: dict[
            MemorySession, int
        ] = {}  # time of the last sign of life that the leader knows
        # signs of life that servers have not yet reported to the leader
        self._unreported: set[MemorySession] = set()
        self._reported_ms = clock.now_ms
        self._tick()

    def open_session(self, client: str, timeout_ms: int, when_awake: WhenAwake) -> SimZkSession:
        """Open a session for a client."""
        inner = self.nodes.connect(timeout_ms)
        self._clients[inner] = client
        self._last_seen_ms[inner] = self.clock.now_ms
        session = self._sessions[inner] = SimZkSession(self, client, inner, when_awake)
        return session

    def cut(self, client: str, for_ms: int) -> None:
        """Cut a client off from all servers for a time."""
        self._cuts[client] = self.clock.now_ms + for_ms

    def cut_server(self, client: str, for_ms: int) -> None:
        """Cut a client's server off from the leader for a time.

        Pings succeed and all other requests wait. The server reports the client's signs of life to
        the leader later.
        """
        self._server_cuts[client] = self.clock.now_ms + for_ms

    def stall(self, client: str, for_ms: int) -> None:
        """Let all requests of a client except pings wait for a time; its session lives.

        The leader does so while its disk is slow.
        """
        self._stalls[client] = self.clock.now_ms + for_ms

    def refuse_appends(self, client: str, count: int) -> None:
        """Refuse the next appends of a client to logs of shards, as a full quota does."""
        self._refused_appends[client] = count

    def remove_node(self, path: str) -> bool:
        """Remove a node, as an operator does. Return False if it does not exist."""
        if path not in self.nodes.nodes:
            return False
        self.nodes.transact([Delete(path)], 0)
        return True

    def heal(self) -> None:
        """End all faults."""
        self._cuts.clear()
        self._server_cuts.clear()
        self._stalls.clear()
        self._refused_appends.clear()

    def cut_for_ms(self, client: str) -> int:
        """Return how long a client is still cut off; 0 if it is not."""
        return max(0, self._cuts.get(client, 0) - self.clock.now_ms)

    def when_reachable(self, client: str, call: Callable[[], None]) -> None:
        """Call a function now, or when the cut between a client and the servers ends."""
        closed_ms = self.cut_for_ms(client)
        if closed_ms:
            self.clock.call_later(closed_ms, lambda: self.when_reachable(client, call))
        else:
            call()

    def server_cut_for_ms(self, client: str) -> int:
        """Return how long a client's server is still cut off; 0 if it is not."""
        return max(0, self._server_cuts.get(client, 0) - self.clock.now_ms)

    def stall_for_ms(self, client: str) -> int:
        """Return how long requests of a client still wait; 0 if they do not."""
        return max(0, self._stalls.get(client, 0) - self.clock.now_ms)

    def is_disturbed(self, client: str) -> bool:
        """True while a client cannot reach the leader, or gets no answers."""
        waits_ms = self.cut_for_ms(client), self.server_cut_for_ms(client)
        return any(waits_ms) or self.stall_for_ms(client) > 0

    async def transact(self, client: str, inner: MemorySession, operations: _Operations) -> None:
        """Apply all operations, or none.

        Raises:
            RefusedError: An operation was refused; it may be a planned refusal of an append.
        """
        count = self._refused_appends.get(client, 0)
        if count and _is_append(operations):
            self._refused_appends[client] = count - 1
            self.on_fault(APPEND_REFUSED)
            raise RefusedError(len(operations) - 1, RefusalReason.OTHER, "injected")
        await inner.transact(operations)

    def _is_server_cut(self, inner: MemorySession) -> bool:
        return self.server_cut_for_ms(self._clients[inner]) > 0

    def delay_ms(self) -> int:
        """Return a random packet delay."""
        return self._rng.randrange(self._delay_max_ms + 1)

    def late_delivery_ms(self) -> int | None:
        """Return the extra delay of a request whose connection was lost, or None if it never
        arrives.
        """
        return self._rng.randrange(_LATE_MAX_MS) if self._rng.random() < 0.5 else None

    def expire_sessions(self, client: str) -> None:
        """Expire all sessions of a client now, and close its connections.

        The client then knows at once that its session may have ended. Otherwise it would rely on
        its lease, while another client already takes over.
        """
        for inner, owner in self._clients.items():
            if owner == client and self._last_seen_ms.pop(inner, None) is not None:
                self._expire(inner)
                self._sessions[inner].lose_connection()

    def _expire(self, inner: MemorySession) -> None:
        self.nodes.expire(inner)
        self.on_fault(SESSION_EXPIRED)
        self.on_expired(inner.session_id)

    def close_session(self, inner: MemorySession) -> None:
        """Close a client's session at once."""
        self._last_seen_ms.pop(inner, None)
        self.nodes.expire(inner)

    def touch_session(self, inner: MemorySession) -> bool:
        """Handle a sign of life. Return True if the session still exists.

        A client's server reports it to the leader with the leader's next ping, twice a tick, even
        if the server asked the leader something in between.
        """
        if self.nodes.is_alive(inner):
            self._unreported.add(inner)
            return True
        return False

    def reattach_session(self, inner: MemorySession) -> bool:
        """Handle a reconnect. Return True if the session still exists, according to the leader."""
        if self.nodes.is_alive(inner):
            self._last_seen_ms[inner] = self.clock.now_ms
            return True
        return False

    def _tick(self) -> None:
        now_ms = self.clock.now_ms
        self.nodes.now_ms = now_ms
        if now_ms - self._reported_ms >= _REPORT_INTERVAL_MS:
            self._reported_ms = now_ms
            for inner in [each for each in self._unreported if not self._is_server_cut(each)]:
                self._unreported.remove(inner)
                if inner in self._last_seen_ms:
                    self._last_seen_ms[inner] = now_ms
        for inner, heard_ms in list(self._last_seen_ms.items()):
            if now_ms - heard_ms > inner.timeout_ms:
                del self._last_seen_ms[inner]
                self._expire(inner)
        self.clock.call_later(_TICK_MS, self._tick)


class SimZkSession:
    """A client session; see `partage.store.zookeeper.Session`.

    ``on_suspended`` is called when the connection is considered lost, ``on_connected`` when the
    session is connected again, ``on_over`` when the client learns that the session ended.
    ``on_leader_answered`` is called with the time at which a request was sent that the leader
    answered.
    """

    def __init__(
        self, servers: ZooKeeper, client: str, inner: MemorySession, when_awake: WhenAwake
    ) -> None:
        self.on_suspended: Callable[[], None] = _ignore
        self.on_connected: Callable[[], None] = _ignore
        self.on_over: Callable[[], None] = _ignore
        self.on_leader_answered: Callable[[int], None] = lambda sent_ms: None
        self.is_closed = False
        self._servers = servers
        self._clock = servers.clock
        self._client = client
        self._inner = inner
        self._when_awake = when_awake
        self._is_connected = True
        self._connection = 1  # number of connections so far
        self._answered_ms = self._clock.now_ms
        self._last_up_ms = 0
        self._last_down_ms = 0
        self._open: dict[SimFuture[Any], None] = {}
        self._connecting: list[SimFuture[None]] = []
        self._watches: list[ChangeCallback] = []
        self._ping()

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the servers granted."""
        return self._inner.timeout_ms

    @property
    def session_id(self) -> int:
        """The session id, which marks the owner of ephemeral nodes."""
        return self._inner.session_id

    def abandon(self) -> None:
        """Stop without closing the session; it expires after its timeout."""
        self.is_closed = True

    def close(self) -> None:
        """Close the session, if the servers can be reached."""
        servers, inner = self._servers, self._inner
        if self._is_connected and not self.is_closed:
            self._last_up_ms = max(self._last_up_ms, self._clock.now_ms + servers.delay_ms())

            def arrive() -> None:
                if not servers.cut_for_ms(self._client):
                    servers.close_session(inner)

            self._clock.call_later(self._last_up_ms - self._clock.now_ms, arrive)
        self.abandon()

    # Packets

    def _send(
        self, ask: Callable[[], Coroutine[Any, Any, T]], *, is_ping: bool = False
    ) -> SimFuture[T]:
        """Send a request. Requests are executed and answered in order."""
        moment: SimFuture[T] = SimFuture()
        self._open[moment] = None
        clock, servers = self._clock, self._servers
        self._last_up_ms = max(self._last_up_ms, clock.now_ms + servers.delay_ms())

        connection = self._connection

        def arrive() -> None:
            if connection == self._connection:
                serve()
            elif (late_ms := servers.late_delivery_ms()) is not None:
                clock.call_later(late_ms, serve)  # its response is dropped

        def serve() -> None:
            alone_ms = servers.server_cut_for_ms(self._client)
            if alone_ms and not is_ping:
                clock.call_later(alone_ms, serve)
                return
            stalled_ms = servers.stall_for_ms(self._client)
            if stalled_ms and not is_ping:
                servers.touch_session(self._inner)
                clock.call_later(stalled_ms, serve)
                return
            if not alone_ms and not servers.touch_session(self._inner):
                clock.call_later(servers.delay_ms(), lambda: self._when_awake(self._disconnect))
                return
            answer = _run_synchronously(ask())
            self._last_down_ms = max(self._last_down_ms, clock.now_ms + servers.delay_ms())
            clock.call_later(
                self._last_down_ms - clock.now_ms,
                lambda: servers.when_reachable(self._client, lambda: leave(answer)),
            )

        def leave(answer: Callable[[SimFuture[T]], None]) -> None:
            self._when_awake(lambda: self._complete(moment, answer))

        def send() -> None:  # it is retransmitted until a cut ends
            servers.when_reachable(self._client, arrive)

        clock.call_later(self._last_up_ms - clock.now_ms, send)
        return moment

    def _complete(self, moment: SimFuture[T], answer: Callable[[SimFuture[T]], None]) -> None:
        if moment in self._open and not self.is_closed:
            del self._open[moment]
            self._answered_ms = self._clock.now_ms
            answer(moment)

    def _request(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        if self.is_closed:
            raise SessionEndedError("the session has expired")
        if not self._is_connected:
            raise InDoubtError("the session is not connected")
        return self._send(ask)

    # Connection

    def _ping(self) -> None:
        """Ping three times per session timeout. Without a response for two thirds of it, the
        connection is lost.
        """
        if self.is_closed:
            return
        third_ms = self.timeout_ms // 3
        if self._is_connected:
            if self._clock.now_ms - self._answered_ms > 2 * third_ms:
                self._disconnect()
            else:
                self._send(self._inner.wait_connected, is_ping=True)
        self._clock.call_later(third_ms, lambda: self._when_awake(self._ping))

    def lose_connection(self) -> None:
        """Let the client notice now that its connection is closed; later if it is paused."""
        self._when_awake(self._disconnect)

    def _disconnect(self) -> None:
        if not self._is_connected or self.is_closed:
            return
        self._is_connected = False
        self._connection += 1
        self.on_suspended()
        failing, self._open = list(self._open), {}
        for moment in failing:
            moment.set_exception(InDoubtError("the connection was lost"))
        watches, self._watches = self._watches, []
        for changed in watches:
            changed()
        self._connect()

    def _connect(self) -> None:
        if self.is_closed or self._is_connected:
            return
        servers, sent_ms = self._servers, self._clock.now_ms

        def arrive() -> None:
            if not servers.cut_for_ms(self._client) and not servers.server_cut_for_ms(self._client):
                lives = servers.reattach_session(self._inner)
                self._clock.call_later(
                    servers.delay_ms(),
                    lambda: self._when_awake(lambda: self._on_reattached(sent_ms, lives=lives)),
                )

        self._clock.call_later(servers.delay_ms(), arrive)
        self._clock.call_later(_CONNECTS_EVERY_MS, lambda: self._when_awake(self._connect))

    def _on_reattached(self, sent_ms: int, *, lives: bool) -> None:
        if self.is_closed or self._is_connected:
            return
        connecting, self._connecting = self._connecting, []
        if lives:
            self._is_connected = True
            self._answered_ms = self._clock.now_ms
            self.on_leader_answered(sent_ms)
            for moment in connecting:
                moment.set_result(None)
            self.on_connected()
        else:
            self.is_closed = True
            for moment in connecting:
                moment.set_exception(SessionEndedError("the session has expired"))
            self.on_over()

    # Session interface

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Execute all operations in one transaction, or none."""
        servers, client, sent_ms = self._servers, self._client, self._clock.now_ms
        try:
            await self._request(lambda: servers.transact(client, self._inner, operations))
        except InDoubtError:
            servers.on_fault(TRANSACTION_IN_DOUBT)
            raise
        except RefusedError:
            self.on_leader_answered(sent_ms)
            raise
        self.on_leader_answered(sent_ms)

    async def read(self, path: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return the node, or None if it does not exist."""
        watch = self._register_watch(changed)
        return await self._request(lambda: self._inner.read(path, watch))

    async def read_all(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Return the nodes. The requests are sent at once, but each node is read at a separate
        time.
        """
        requests = [self._request(partial(self._inner.read, path)) for path in paths]
        return [await node for node in requests]

    async def children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        """Return the names of the children."""
        watch = self._register_watch(changed)
        return await self._request(lambda: self._inner.children(path, watch))

    async def ping_leader(self) -> None:
        """Round trip to the leader."""
        sent_ms = self._clock.now_ms
        await self._request(self._inner.ping_leader)
        self.on_leader_answered(sent_ms)

    async def wait_connected(self) -> None:
        """Wait until the session is connected."""
        if self.is_closed:
            raise SessionEndedError("the session has expired")
        if not self._is_connected:
            moment: SimFuture[None] = SimFuture()
            self._connecting.append(moment)
            await moment

    def _register_watch(self, changed: ChangeCallback | None) -> ChangeCallback | None:
        """Return the watch for the servers. The client is notified after a delay."""
        if changed is None:
            return None
        self._watches.append(changed)

        def on_changed() -> None:
            delay_ms = self._servers.delay_ms()
            self._servers.when_reachable(
                self._client,
                lambda: self._clock.call_later(delay_ms, lambda: self._when_awake(notify)),
            )

        def notify() -> None:
            if changed in self._watches and not self.is_closed:
                self._watches.remove(changed)
                changed()

        return on_changed


def _run_synchronously(work: Coroutine[Any, Any, T]) -> Callable[[SimFuture[T]], None]:
    """Run a request synchronously. Return a function that completes a future with its result."""
    try:
        work.send(None)
    except StopIteration as ended:
        given: T = ended.value
        return lambda moment: moment.set_result(given)
    except Exception as error:
        failure = error
        return lambda moment: moment.set_exception(failure)
    raise AssertionError("the servers never await")


def _is_append(operations: _Operations) -> bool:
    """True if a transaction appends entries to logs of shards, behind their fences."""
    return isinstance(operations[0], Check) and isinstance(operations[-1], Create)


def _ignore_fault(what: str) -> None:
    """Ignore a fault."""


def _ignore() -> None:
    """Do nothing."""
