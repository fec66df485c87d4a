"""The network of a simulated world: connections whose bytes arrive late, in pieces, or not at all.

As with TCP, the bytes of one direction arrive in order. A cut holds them until it is healed. If a
process is killed, its peers see a reset; if it is paused, its system still accepts connections and
bytes.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from partage.testing.world.process import WorldProcess, current_process
from partage.testing.world.virtual_loop import VirtualLoop

#: The time that bytes take from one process to another, in seconds.
_LATENCY_S: Final = (0.0001, 0.002)
#: How long a system tries to connect to a host that it cannot reach, as Linux does.
_CONNECT_TIMEOUT_S: Final = 130.0
_SPLIT_SHARE: Final = 0.05
_HIGH_WATER_BYTES: Final = 64 * 1024
_FIRST_FREE_PORT: Final = 20_000
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_HOSTS: Final = frozenset({"", "0.0.0.0", "::"})
#: The host of code that belongs to no process, such as that of the test.
TEST_HOST: Final = "test"

#: Host and port, as Python's sockets return them: plain tuples.
Address = tuple[str, int]


class _WorldSocket:
    """The part of a socket that programs use: its addresses. Options have no effect."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, own: Address, peer: Address | None = None) -> None:
        self._own, self._peer = own, peer

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def getsockname(self) -> Address:
        """Return the address of this end."""
        return self._own

    def getpeername(self) -> Address:
        """Return the address of the other end."""
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._peer

    def setsockopt(self, *args: Any) -> None:
        """Do nothing."""

    def getsockopt(self, *args: Any) -> int:
        """Return 0."""
        return 0


class WorldTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: WorldNetwork,
        process: WorldProcess | None,
        own: Address,
        peer: Address,
    ) -> None:
        super().__init__({"peername": peer, "sockname": own, "socket": _WorldSocket(own, peer)})
        self._network = network
        self._loop = network.loop
        self.process = process
        self.host = own[0]
        self._protocol: asyncio.BaseProtocol | None = None
        self.other: WorldTransport
        self._is_closing = False
        self._is_lost = False
        self._is_reading = True
        self._has_written_eof = False
        self._received: deque[bytes] = deque()
        self._is_eof_received = False
        self._unread_bytes = 0  # sent by this end, and not yet read by the other one
        self._is_writing_paused = False
        self._high_water, self._low_water = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._last_arrival_s = 0.0
        self._in_transit: deque[tuple[Callable[..., None], tuple[bytes, ...]]] = deque()
        #: Called when bytes are sent.
        self.on_write: Callable[[], None] | None = None
        #: True for the end that has opened the connection.
        self.is_client = False
        #: True if the connection is to fail with the next bytes that this end sends.
        self.fails_next = False
        #: True if no more bytes arrive at either end, and neither end is told.
        self.is_dead = False
        #: True while the bytes of this direction are held.
        self.is_stalled = False

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol of this end."""
        self._protocol = protocol
        protocol.connection_made(self)

    # Transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None, "the connection is not made yet"
        return self._protocol

    def has_protocol(self, protocol: asyncio.BaseProtocol) -> bool:
        """Return True for the protocol of this end."""
        return self._protocol is protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return True after `close`."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return True unless reading is paused."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Deliver no more bytes until `resume_reading`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver the bytes that arrived in the meantime, and later ones."""
        if not self._is_reading:
            self._is_reading = True
            self._call_soon(self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of unread bytes at which the protocol pauses and resumes its writes."""
        self._high_water = _HIGH_WATER_BYTES if high is None else high
        self._low_water = self._high_water // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the other end has not read."""
        return self._unread_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        content = bytes(data)
        if not content or self._is_lost or self._has_written_eof or self._is_closing:
            return
        if self.on_write is not None:
            self.on_write()
        if self.fails_next:
            self.fails_next = False
            self.is_dead = self.other.is_dead = True
        self._unread_bytes += len(content)
        for piece in self._network.split(content):
            self._send(self.other.receive, piece)
        if self._unread_bytes > self._high_water and not self._is_writing_paused:
            self._is_writing_paused = True
            self.get_protocol().pause_writing()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def write_eof(self) -> None:
        """Send the end of this direction."""
        if not self._has_written_eof and not self._is_lost:
            self._has_written_eof = True
            self._send(self.other.receive_eof)

    def close(self) -> None:
        """Close after the bytes written so far have been sent."""
        if not self._is_closing:
            self._is_closing = True
            if not self._has_written_eof:
                self._has_written_eof = True
                self._send(self.other.receive_eof)
            self._call_soon(lambda: self._lose(None))

    def abort(self) -> None:
        """Close at once; the other end sees a reset."""
        if not self._is_lost:
            self._is_closing = True
            self.reset_other()
            self._call_soon(lambda: self._lose(None))

    # Network

    def vanish(self) -> None:
        """Close without a word: the process was killed, or the world ends."""
        self._is_closing = self._is_lost = True
        self._network.forget(self)

    def reset_other(self) -> None:
        """Let the other end see a reset."""
        self._send(self.other.receive_reset)

    def receive(self, piece: bytes) -> None:
        """Take bytes that arrived, in the context of this end's process."""
        if not self._is_lost and not self._is_closing:
            self._received.append(piece)
            self._deliver()

    def receive_eof(self) -> None:
        """Take the end of the other direction."""
        self._is_eof_received = True
        self._deliver()

    def receive_reset(self) -> None:
        """Take a reset."""
        self._is_closing = True
        self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _deliver(self) -> None:
        while self._received and self._is_reading and not self._is_closing:
            piece = self._received.popleft()
            self.other.acknowledge(len(piece))
            _feed(self.get_protocol(), piece)
        if self._is_eof_received and not self._received and not self._is_closing:
            self._is_eof_received = False
            protocol = self.get_protocol()
            stays_open = getattr(protocol, "eof_received", lambda: None)()
            if not stays_open:
                self.close()

    def acknowledge(self, count: int) -> None:
        """Count bytes that the other end has read; resume a paused protocol."""
        self._unread_bytes -= count
        if self._is_writing_paused and self._unread_bytes <= self._low_water:
            self._loop.call_later(
                self._network.latency_s(), self._resume_writing, context=self.context
            )

    def _resume_writing(self) -> None:
        if self._is_writing_paused and not self._is_lost:
            self._is_writing_paused = False
            self.get_protocol().resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._network.forget(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _send(self, arrive: Callable[..., None], *arguments: bytes) -> None:
        """Schedule an arrival at the other end, after all earlier ones."""
        if self.is_dead:
            return
        network = self._network
        at_s = self._loop.time() + network.latency_s()
        if at_s < self._last_arrival_s:
            at_s = self._last_arrival_s
        self._last_arrival_s = at_s
        self._in_transit.append((arrive, arguments))
        network.arrive_at(at_s, self)

    def deliver_next(self) -> None:
        """Let what was sent first arrive at the other end."""
        arrive, arguments = self._in_transit.popleft()
        arrive(*arguments)

    @property
    def context(self) -> contextvars.Context:
        """A new context for a callback of this end; a context cannot be entered twice."""
        return self._network.context_of(self.process)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self.context)


class WorldServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(
        self,
        network: WorldNetwork,
        process: WorldProcess | None,
        address: Address,
        factory: Any,
    ) -> None:
        self._network = network
        self.process = process
        self.address = address
        self.factory = factory
        self.sockets = [_WorldSocket(address)]
        self._closed = network.loop.create_future()

    def close(self) -> None:
        """Stop listening."""
        self._network.stop_listening(self)
        if not self._closed.done():
            self._closed.set_result(None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return self._network.loop

    def is_serving(self) -> bool:
        """Return True until it is closed."""
        return not self._closed.done()

    async def start_serving(self) -> None:
        """Do nothing: it listens from its creation."""

    async def serve_forever(self) -> None:
        """Wait until it is closed."""
        try:
            await asyncio.shield(self._closed)
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await asyncio.shield(self._closed)


class WorldNetwork:
    """All listeners and connections, and the cuts between hosts.

    Args:
        loop: the loop of the world.
        rng: draws latencies and splits.

    Attributes:
        slowest_s: the longest latency now, in seconds.
        attempts: how often each host has tried to connect.
    """

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self._rng = rng
        self._random = rng.random
        self._servers: dict[Address, WorldServer] = {}
        self._transports: dict[WorldTransport, None] = {}
        self._cuts: dict[frozenset[str], None] = {}
        self._held: list[WorldTransport] = []  # one entry for each arrival that a cut holds
        self._healed: asyncio.Event = asyncio.Event()
        self.slowest_s = _LATENCY_S[1]
        self.attempts: Counter[str] = Counter()
        self._next_port = _FIRST_FREE_PORT

    def context_of(self, process: WorldProcess | None) -> contextvars.Context:
        """Return a context of a process; an empty one for the test itself."""
        return contextvars.Context() if process is None else process.context.copy()

    def latency_s(self) -> float:
        """Draw the time that bytes take."""
        fastest_s = _LATENCY_S[0]
        return fastest_s + (self.slowest_s - fastest_s) * self._random()

    def split(self, content: bytes) -> list[bytes]:
        """Return the pieces in which bytes arrive: rarely more than one."""
        if len(content) < 2 or self._random() >= _SPLIT_SHARE:
            return [content]
        at = self._rng.randrange(1, len(content))
        return [content[:at], content[at:]]

    # Listeners and connections

    def listen(self, factory: Any, host: Any, port: int) -> WorldServer:
        """Listen on an address of the running process.

        Raises:
            OSError: the address is in use.
        """
        process = current_process.get()
        own = TEST_HOST if process is None else process.name
        name = own if host is None or host in _LOCAL_HOSTS | _ANY_HOSTS else str(host)
        if not port:
            self._next_port += 1
            port = self._next_port
        address = (name, port)
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, f"the address {name}:{port} is already in use")
        server = WorldServer(self, process, address, factory)
        self._servers[address] = server
        return server

    def stop_listening(self, server: WorldServer) -> None:
        """Remove a listener."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, factory: Any, host: str, port: int
    ) -> tuple[WorldTransport, asyncio.BaseProtocol]:
        """Connect the running process to a listener.

        Raises:
            ConnectionRefusedError: no process listens there.
            ConnectionResetError: the connection was reset before it was complete.
            TimeoutError: a cut lasted longer than the system tries.
        """
        process = current_process.get()
        own = TEST_HOST if process is None else process.name
        self.attempts[own] += 1
        target = own if host in _LOCAL_HOSTS else host
        await asyncio.sleep(self.latency_s())
        await self.wait_for_path(own, target)
        server = self._servers.get((target, port))
        if server is None or (server.process is not None and server.process.is_killed):
            await asyncio.sleep(self.latency_s())
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"Connect call failed ({target!r}, {port})"
            )
        self._next_port += 1
        near = WorldTransport(self, process, (own, self._next_port), server.address)
        far = WorldTransport(self, server.process, server.address, (own, self._next_port))
        near.other, far.other = far, near
        near.is_client = True
        self._transports[near] = self._transports[far] = None
        protocol = server.factory
        self.loop.call_soon(lambda: far.attach(protocol()), context=self.context_of(server.process))
        try:
            await asyncio.sleep(self.latency_s())
        except asyncio.CancelledError:  # the system closes the socket of a caller that gave up
            near.reset_other()
            near.vanish()
            raise
        if near.is_closing():  # reset meanwhile
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        own_protocol = factory()
        near.attach(own_protocol)
        return near, own_protocol

    async def wait_for_path(self, one: str, other: str) -> None:
        """Wait until no cut separates two hosts.

        Raises:
            TimeoutError: a cut lasted longer than the system tries.
        """
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                while self.is_cut(one, other):
                    await self._healed.wait()
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer from {other}") from None

    def arrive_at(self, at_s: float, sender: WorldTransport) -> None:
        """Let the next thing arrive at the other end of ``sender``, later if a cut holds it."""
        context = self.context_of(sender.other.process)
        self.loop.call_at(at_s, self._arrive, sender, context=context)

    def _arrive(self, sender: WorldTransport) -> None:
        if (
            sender.is_stalled
            or sender in self._held
            or (self._cuts and self.is_cut(sender.host, sender.other.host))
        ):
            self._held.append(sender)
        else:
            sender.deliver_next()

    def other_end(self, protocol: asyncio.BaseProtocol) -> WorldTransport | None:
        """Return the other end of a protocol's connection, None if the connection was lost."""
        for transport in self._transports:
            if transport.has_protocol(protocol):
                return transport.other
        return None

    def forget(self, transport: WorldTransport) -> None:
        """Remove a lost connection."""
        self._transports.pop(transport, None)

    def connection_count(self, host: str) -> int:
        """Return the number of open connections of a host."""
        return sum(transport.host == host for transport in self._transports)

    def reset_connections_of(self, process: WorldProcess) -> None:
        """Let the peers of a killed process see resets, and remove its listeners."""
        for transport in list(self._transports):
            if transport.process is process:
                transport.reset_other()
                transport.vanish()
        for server in list(self._servers.values()):
            if server.process is process:
                self.stop_listening(server)

    def close(self) -> None:
        """Close all connections at the end of the world."""
        for transport in list(self._transports):
            transport.vanish()

    # Faults

    def cut(self, one: str, other: str) -> None:
        """Hold all bytes between two hosts."""
        self._cuts[frozenset((one, other))] = None

    def is_cut(self, one: str, other: str) -> bool:
        """Return True if bytes between two hosts are held."""
        return bool(self._cuts) and frozenset((one, other)) in self._cuts

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End one cut, or all of them; held bytes arrive."""
        if one is None or other is None:
            self._cuts.clear()
        else:
            self._cuts.pop(frozenset((one, other)), None)
        self._release_held()
        healed, self._healed = self._healed, asyncio.Event()
        healed.set()

    def _release_held(self) -> None:
        """Let held bytes arrive; those that another cut or stall holds are held again."""
        held, self._held = self._held, []
        for sender in held:
            self.arrive_at(self.loop.time() + self.latency_s(), sender)

    def connections_of(self, host: str) -> list[WorldTransport]:
        """Return the ends of the open connections that a host has opened, oldest first."""
        return [each for each in self._transports if each.host == host and each.is_client]

    def reset(self, transport: WorldTransport) -> None:
        """Let both ends of a connection see a reset."""
        transport.reset_other()
        transport.other.reset_other()

    def kill_silently(self, transport: WorldTransport, *, at_response: bool) -> None:
        """Drop all bytes of a connection from its next request or response on.

        Neither end is told, as if a firewall had forgotten the connection.
        """
        (transport.other if at_response else transport).fails_next = True

    def stall(self, transport: WorldTransport, for_s: float) -> None:
        """Hold the bytes of one connection for a time."""
        ends = transport, transport.other

        def end() -> None:
            for each in ends:
                each.is_stalled = False
            self._release_held()

        for each in ends:
            each.is_stalled = True
        self.loop.call_later(for_s, end)

    def end_connection_faults(self) -> None:
        """Let no connection fail from now on; those that have failed stay dead."""
        for each in self._transports:
            each.fails_next = each.is_stalled = False
        self._release_held()

    def slow_down(self, slowest_s: float | None) -> None:
        """Set the longest latency, None for the normal one."""
        self.slowest_s = _LATENCY_S[1] if slowest_s is None else slowest_s


def _feed(protocol: asyncio.BaseProtocol, content: bytes) -> None:
    """Deliver bytes to a protocol of either kind."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        while content:
            size = len(content)
            buffer = memoryview(protocol.get_buffer(size))
            count = min(len(buffer), size)
            buffer[:count] = content if count == size else content[:count]
            protocol.buffer_updated(count)
            content = content[count:]
    else:
        assert isinstance(protocol, asyncio.Protocol), "the protocol is one for streams"
        protocol.data_received(content)
