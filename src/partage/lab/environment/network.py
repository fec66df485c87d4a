"""The network: connections whose bytes arrive late, in pieces, or not at all.

As with TCP, bytes of one direction arrive in order or not at all. Connections know nothing of each
other, so requests sent over two of them may arrive in any order. A one-way cut holds bytes back
until it is healed; a reset lets some of the bytes under way arrive, up to any one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from partage.lab.environment.clock import Clock


class ConnectionEnd(Protocol):
    """One end of a connection."""

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""

    def connection_lost(self) -> None:
        """The connection is gone; nothing arrives any more."""


class Direction:
    """One way through a connection."""

    def __init__(self, network: Network, client: str, way: str) -> None:
        self.end: ConnectionEnd | None = None
        self._network = network
        self._client = client
        self._way = way
        self._last_ms = 0
        self._in_flight: list[bytes] = []
        self.is_open = True

    def send(self, data: bytes) -> None:
        """Bytes set out."""
        if self.is_open:
            for piece in self._network.split(data):
                self._in_flight.append(piece)
                self._arrive_later(self._arrive)

    def _arrive(self) -> None:
        if self._in_flight:
            piece = self._in_flight.pop(0)
            if self.is_open and self.end is not None:
                self.end.data_received(piece)

    def close(self) -> None:
        """The sender closed: the other end learns it after all that was sent."""
        self._arrive_later(self._lose)

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            if self.end is not None:
                self.end.connection_lost()

    def reset(self, byte_count: int) -> None:
        """Let so many of the bytes under way arrive, and no more."""
        arriving, self._in_flight = b"".join(self._in_flight)[:byte_count], []
        if arriving and self.is_open and self.end is not None:
            self.end.data_received(arriving)
        self._lose()

    def drop_silently(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self.is_open = False
        self._in_flight = []

    @property
    def in_flight_bytes(self) -> int:
        """The bytes under way."""
        return sum(map(len, self._in_flight))

    def _arrive_later(self, call: Callable[[], None]) -> None:
        network = self._network
        clock = network.clock
        self._last_ms = max(self._last_ms, clock.now_ms + network.delay_ms())

        def arrive() -> None:
            until_ms = network.cut_until(self._client, self._way)
            if until_ms > clock.now_ms:
                self._last_ms = max(self._last_ms, until_ms)
                clock.call_later(until_ms - clock.now_ms, arrive)
            else:
                call()

        clock.call_later(self._last_ms - clock.now_ms, arrive)


class SimConnection:
    """Two directions: ``up`` to the broker, ``down`` to the client."""

    def __init__(self, network: Network, client: str, index: int) -> None:
        self.client = client
        self.index = index
        self.up = Direction(network, client, "up")
        self.down = Direction(network, client, "down")

    @property
    def is_open(self) -> bool:
        """Whether anything can still arrive anywhere."""
        return self.up.is_open or self.down.is_open

    def close_from_client(self) -> None:
        """The client closes: it reads no more, and the broker learns it later."""
        self.down.drop_silently()
        self.up.close()

    def close_from_broker(self) -> None:
        """The broker closes, or its process is gone: the system tells the client."""
        self.up.drop_silently()
        self.down.close()


class ConnectionAcceptor(Protocol):
    """Whoever takes connections."""

    def accept(self, connection: SimConnection) -> ConnectionEnd | None:
        """The broker's end of a new connection; None where nobody listens."""


class Network:
    """All connections, and what is wrong with the ways between them."""

    def __init__(self, clock: Clock, rng: Random, delay_max_ms: int, splits: float) -> None:
        self.clock = clock
        self.brokers: dict[int, ConnectionAcceptor] = {}  # by the id that addresses it
        self.connections: list[SimConnection] = []
        self._rng = rng
        self._delay_max_ms = delay_max_ms
        self._splits = splits
        self._slow: tuple[int, int] = (0, 0)  # until when, and up to how much
        self._cuts: dict[tuple[str, str], int] = {}
        self._refused_until_ms = 0
        self._count = 0

    def connect(
        self,
        client: str,
        broker_id: int,
        end: ConnectionEnd,
        done: Callable[[SimConnection | None], None],
    ) -> None:
        """Open a connection to a broker; ``done`` gets it, or None if nobody answers."""

        def arrive() -> None:
            self._count += 1
            connection = SimConnection(self, client, self._count)
            server = None
            if self.clock.now_ms >= self._refused_until_ms:
                server = self.brokers[broker_id].accept(connection)
            if server is not None:
                connection.up.end, connection.down.end = server, end
                self.connections = [c for c in self.connections if c.is_open]
                self.connections.append(connection)
            answer = None if server is None else connection
            self.clock.call_later(self.delay_ms(), lambda: done(answer))

        self.clock.call_later(self.delay_ms(), arrive)

    def delay_ms(self) -> int:
        """How long the next bytes take."""
        until_ms, slow_ms = self._slow
        longest = slow_ms if self.clock.now_ms < until_ms else self._delay_max_ms
        return self._rng.randrange(longest + 1)

    def split(self, data: bytes) -> list[bytes]:
        """The pieces in which bytes arrive: as sent, halves, or the first bytes one by one."""
        if not self._splits or self._rng.random() >= self._splits or len(data) < 2:
            return [data]
        if self._rng.random() < 0.3:
            head = min(len(data) - 1, 6)
            return [data[at : at + 1] for at in range(head)] + [data[head:]]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]

    # What goes wrong.

    def slow_down(self, longest_ms: int, for_ms: int) -> None:
        """Bytes take up to ``longest_ms`` for a while."""
        self._slow = (self.clock.now_ms + for_ms, longest_ms)

    def cut(self, client: str, way: str, for_ms: int) -> None:
        """Nothing passes in one direction for a while; what is sent waits."""
        self._cuts[client, way] = self.clock.now_ms + for_ms

    def cut_until(self, client: str, way: str) -> int:
        """When the way is open again."""
        return self._cuts.get((client, way), 0) if self._cuts else 0

    def refuse_connections(self, for_ms: int) -> None:
        """Nobody can connect for a while."""
        self._refused_until_ms = self.clock.now_ms + for_ms

    def heal(self) -> None:
        """All of that is over; bytes already late arrive when they arrive."""
        self._slow = (0, 0)
        self._cuts.clear()
        self._refused_until_ms = 0
        self._splits = 0.0
