"""The listener: accepts connections, bounds them, and knows which API has which handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import socket
from collections.abc import Callable, Mapping
from typing import Final

from partage.broker.clock import Clock
from partage.broker.net.connection import SCRATCH_SIZE, Connection
from partage.broker.net.inbound_request import Handler
from partage.broker.net.memory_pool import MemoryPool
from partage.model.settings import ConnectionLimits
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

#: Joining small buffers is cheaper than many of them, up to here. With asyncio's own loop all are
#: joined: in Python 3.12.1 and 3.13.0 its writelines never calls pause_writing.
_JOIN_MAX: Final = 64 * 1024
_IDLE_CHECK_INTERVAL_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0  # that clients have to take what is theirs when the broker ends
_STALLED_MAX_MS: Final = 30_000
_SENDABLE_MIN: Final = 64 * 1024
_BACKLOG: Final = 4096  # connections that the system takes while the loop is busy
#: asyncio's own loop accepts as many in one turn as it asks the system to take, before anybody can
#: see that they are too many; uvloop accepts one after the other.
_ACCEPTS_PER_TURN: Final = 8
_RESERVED_DESCRIPTORS: Final = 640  # for files, and for the system's own; of few, half


class Server:
    """All connections of a broker."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.handlers: Mapping[int, Handler] = {}
        self.apis: dict[int, AnyApi] = {}
        self.limits = limits
        self.clock = clock
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        #: Shared by all requests above 64 KiB; one of the largest always fits.
        self.memory_pool = MemoryPool(max(limits.requests_bytes_max, limits.request_bytes_max))
        #: What clients that are slow to read have not taken yet.
        self.unsent_bytes = 0
        self._connections: dict[Connection, None] = {}
        self._connections_max, self._limit_reason = _connections_max(limits)
        self._is_full = False
        self._is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        self._join_max: float = _JOIN_MAX if self._is_uvloop else math.inf
        self._all_closed = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._idle_closer: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections; the address that others reach, its port chosen if it was 0.

        Raises:
            OSError: the address is in use, or not this machine's.
        """
        loop = asyncio.get_running_loop()
        backlog = _BACKLOG if self._is_uvloop else _ACCEPTS_PER_TURN
        self._listener = await loop.create_server(
            lambda: Connection(self), host, port, backlog=backlog
        )
        for listening in self._listener.sockets:
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(_BACKLOG)
        self._idle_closer = loop.create_task(self._close_idle())
        bound = self._listener.sockets[0].getsockname()
        return bound[0], bound[1]

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        """Serve these APIs; connections made before wait for it."""
        self.handlers = handlers
        self.apis = {key: APIS[key] for key in sorted(handlers)}
        for connection in list(self._connections):
            connection.on_serving()

    def intercept(self, wrap: Callable[[Handler], Handler]) -> None:
        """Have ``wrap`` put something around every handler, for tests that order faults."""
        self.handlers = {key: wrap(handler) for key, handler in self.handlers.items()}

    @property
    def connections(self) -> list[Connection]:
        """All that are open."""
        return list(self._connections)

    async def close(self) -> None:
        """Accept nobody any more, and close all connections."""
        self._all_closed.clear()
        if self._idle_closer is not None:
            self._idle_closer.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            waiting = asyncio.wait_for(self._all_closed.wait(), _CLOSE_TIMEOUT_S)
            with contextlib.suppress(TimeoutError):
                await waiting
        for connection in list(self._connections):
            connection.abort()

    # Calls of the connections.

    def add_connection(self, connection: Connection) -> None:
        """Take a connection in, or turn it away when there are too many."""
        self._connections[connection] = None
        if len(self._connections) <= self._connections_max:
            self._is_full = False
            return
        if not self._is_full:
            log.error("rejected a connection: %s", self._limit_reason)
        self._is_full = True
        connection.close()

    def remove_connection(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_closed.set()

    def send(self, transport: asyncio.Transport, parts: list[Buffer]) -> None:
        """Send buffers one after the other, large ones without copying them together."""
        if sum(map(len, parts)) <= self._join_max:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)

    @property
    def response_bytes_max(self) -> int:
        """How large an answer should be at most, in view of what is unsent."""
        return max(_SENDABLE_MIN, self.limits.responses_bytes_max - self.unsent_bytes)

    async def _close_idle(self) -> None:
        """Close connections that have not asked anything for long (connections.max.idle.ms).

        Those that keep room for a large request which others wait for have less time, and even if
        they wait for something else.
        """
        idle_max_ms = self.limits.idle_max_ms
        while True:
            await asyncio.sleep(min(_IDLE_CHECK_INTERVAL_S, idle_max_ms / 2000))
            now_ms = self.clock.now_ms()
            for connection in list(self._connections):
                is_stuck = self.memory_pool.has_waiters and connection.has_stalled_request
                allowed_ms = min(idle_max_ms, _STALLED_MAX_MS) if is_stuck else idle_max_ms
                idle_ms = now_ms - connection.last_active_ms
                if idle_ms > allowed_ms and (is_stuck or not connection.has_pending_work):
                    log.info("closed the connection of %s: idle", connection.client_host)
                    connection.abort()


def _connections_max(limits: ConnectionLimits) -> tuple[int, str]:
    """How many connections there may be, and what to say when there are more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS, whose hard limit is none but has one
            hard = soft
    kept = min(_RESERVED_DESCRIPTORS, hard // 2)
    by_system = hard - kept if hard != resource.RLIM_INFINITY else limits.connections_max
    if by_system < limits.connections_max:
        story = (
            f"{by_system} connections are open, the maximum with a limit of {hard} file "
            "descriptors; raise the limit (ulimit -n) before you start the broker"
        )
        return by_system, story
    return limits.connections_max, f"max.connections={limits.connections_max} connections are open"
