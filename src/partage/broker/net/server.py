"""The listener: accepts connections, limits them, and maps APIs to handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from partage.broker.clock import Clock
from partage.broker.net.connection import Connection
from partage.broker.net.descriptor_limit import raise_descriptor_limit
from partage.broker.net.inbound_request import Handler
from partage.broker.net.shared_resources import SharedResources
from partage.model.addresses import Address
from partage.model.settings import SYSTEM_BUFFER, ConnectionLimits
from partage.wire.apis import APIS

log = logging.getLogger(__name__)

_IDLE_CHECK_INTERVAL_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0  # for clients to receive their last responses at shutdown
_STALLED_MAX_MS: Final = 30_000
_BACKLOG: Final = 4096  # connections that the system accepts while the loop is busy
#: asyncio's own loop accepts as many connections in one turn as the backlog allows, before the
#: limit can be checked; uvloop accepts one at a time.
_ACCEPTS_PER_TURN: Final = 8
#: Turns of the event loop from an accepted socket to `Connection.connection_made`.
_ACCEPTING_TURNS: Final = 3


class ListenError(OSError):
    """Raised if the address is in use, or is not an address of this machine."""

    def __init__(self, error: OSError) -> None:
        # The text of asyncio repeats the address; the number of a failed lookup is negative.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        super().__init__(reason or str(error))


def check_address(host: str, port: int) -> None:
    """Raise `ListenError` if a broker cannot listen on this address now.

    A broker calls it before it creates a data directory, and listens after it has opened the data.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:  # as asyncio does
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise ListenError(error) from None


class Server:
    """All connections of a broker."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.resources = SharedResources(limits, clock)
        self._connections: dict[Connection, None] = {}
        self._connections_max, self._limit_reason = _connections_max(limits)
        self._is_full = False
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._listener: asyncio.Server | None = None
        self._idle_closer: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections; return the bound address and port.

        Requests are served only after `serve`.

        Raises:
            ListenError: the address is in use, or not an address of this machine.
        """
        loop = asyncio.get_running_loop()
        backlog = _BACKLOG if self.resources.is_uvloop else _ACCEPTS_PER_TURN
        create = loop.create_server(self.make_connection, host, port, backlog=backlog)
        try:
            self._listener = await create
        except OSError as error:
            raise ListenError(error) from None
        for listening in self._listener.sockets:
            if listening.fileno() < 0:
                continue  # a listener of a simulated world
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(_BACKLOG)
                _set_send_buffer(same, self.resources.limits.send_buffer_bytes)
        self._idle_closer = loop.create_task(self._close_idle())
        bound = self._listener.sockets[0].getsockname()
        return Address(bound[0], bound[1])

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        """Serve these APIs, also on connections that were opened before."""
        self.resources.handlers = handlers
        self.resources.apis.update((key, APIS[key]) for key in sorted(handlers))
        for connection in list(self._connections):
            connection.on_serving()

    def limit_connections(self, limits: ConnectionLimits) -> None:
        """Change the maximum number of connections; those that are open stay open."""
        self._connections_max, self._limit_reason = _connections_max(limits)

    def intercept(self, wrap: Callable[[Handler], Handler]) -> None:
        """Replace every handler by ``wrap(handler)``, to inject faults in tests."""
        handlers = self.resources.handlers
        self.resources.handlers = {key: wrap(handler) for key, handler in handlers.items()}

    @property
    def connections(self) -> list[Connection]:
        """All open connections."""
        return list(self._connections)

    async def close(self) -> None:
        """Stop accepting connections, and close all of them."""
        if self._idle_closer is not None:
            self._idle_closer.cancel()
        if self._listener is not None:
            await _close_listener(self._listener)
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._all_closed.wait()
        for connection in list(self._connections):
            connection.abort()
        await self._all_closed.wait()

    def make_connection(self) -> Connection:
        """Return the protocol for a new socket."""
        return Connection(
            self.resources, on_opened=self._add_connection, on_closed=self._remove_connection
        )

    def _add_connection(self, connection: Connection) -> None:
        """Add a connection, or close it if there are too many."""
        self._connections[connection] = None
        self._all_closed.clear()
        if len(self._connections) <= self._connections_max:
            self._is_full = False
            return
        if not self._is_full:
            log.error("rejected a connection: %s", self._limit_reason)
        self._is_full = True
        connection.close()

    def _remove_connection(self, connection: Connection) -> None:
        """Remove a connection."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_closed.set()

    async def _close_idle(self) -> None:
        """Close connections without requests for a long time (``connections.max.idle.ms``).

        A connection whose large request makes no progress, while other requests wait for its
        memory, has less time, even if it waits for something.
        """
        idle_max_ms = self.resources.limits.idle_max_ms
        while True:
            await asyncio.sleep(min(_IDLE_CHECK_INTERVAL_S, idle_max_ms / 2000))
            now_ms = self.resources.clock.now_ms()
            for connection in list(self._connections):
                is_stuck = self.resources.memory_pool.has_waiters and connection.has_stalled_request
                allowed_ms = min(idle_max_ms, _STALLED_MAX_MS) if is_stuck else idle_max_ms
                idle_ms = now_ms - connection.last_active_ms
                if idle_ms > allowed_ms and (is_stuck or not connection.has_pending_work):
                    log.info("closed the connection of %s: idle", connection.client_host)
                    connection.abort()


def _set_send_buffer(listening: socket.socket, size: int) -> None:
    """Set the send buffer of the sockets that will be accepted: they inherit it."""
    if size == SYSTEM_BUFFER:
        return
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
    except OSError as error:  # above the maximum of macOS; Linux takes its own maximum
        log.warning(
            "socket.send.buffer.bytes=%d is refused: %s; the system chooses the size now, "
            "set a smaller one",
            size,
            error.strerror,
        )


async def _close_listener(listener: asyncio.Server) -> None:
    """Close a listener after the connections that it has accepted are made.

    If the listener is closed between the accept and the creation of the transport, asyncio never
    closes the socket (CPython issue 109564).
    """
    loop = listener.get_loop()
    for listening in listener.sockets:
        loop.remove_reader(listening.fileno())  # stops asyncio's accepts; uvloop ignores it
    for _ in range(_ACCEPTING_TURNS):
        await asyncio.sleep(0)
    listener.close()
    for _ in range(_ACCEPTING_TURNS):  # for sockets that uvloop accepted in the meantime
        await asyncio.sleep(0)


def _connections_max(limits: ConnectionLimits) -> tuple[int, str]:
    """Return the maximum number of connections, and the log text for when it is reached."""
    by_system = raise_descriptor_limit()
    if by_system is not None and by_system[1] < limits.connections_max:
        descriptors, connections_max = by_system
        reason = (
            f"{connections_max} connections are open, the maximum with a limit of {descriptors} "
            "file descriptors; raise the limit (ulimit -n) before you start the broker"
        )
        return connections_max, reason
    return limits.connections_max, f"max.connections={limits.connections_max} connections are open"
