"""A simulated network: bytes arrive late, in pieces, or not at all.

As with TCP, bytes of one direction arrive in order. Connections are independent, so requests on two
connections may arrive in any order. A one-way cut delays bytes until it is healed. A reset lets a
prefix of the bytes in flight arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from partage.lab.environment.clock import Clock


class ConnectionEnd(Protocol):
    """One end of a connection."""

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""

    def connection_lost(self) -> None:
        """Handle the loss of the connection. No more bytes arrive."""


class Direction:
    """One direction of a connection."""

    def __init__(self, network: Network, client: str, way: str) -> None:
        self.end: ConnectionEnd | None = None
        self._network = network
        self._client = client
        self._way = way
        self._last_ms = 0
        self._in_flight: list[bytes] = []
        self.is_open = True

    def send(self, data: bytes) -> None:
        """Send bytes."""
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
        """Close from the sender's side: the receiver notices after it received all bytes."""
        self._arrive_later(self._lose)

    def abort(self) -> None:
        """Drop the bytes in flight, and close."""
        self._in_flight = []
        self.close()

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            if self.end is not None:
                self.end.connection_lost()

    def reset(self, byte_count: int) -> None:
        """Reset after ``byte_count`` of the bytes in flight arrived."""
        arriving, self._in_flight = b"".join(self._in_flight)[:byte_count], []
        if arriving and self.is_open and self.end is not None:
            self.end.data_received(arriving)
        self._lose()

    def drop_silently(self) -> None:
        """Drop all bytes without notifying either end."""
        self.is_open = False
        self._in_flight = []

    @property
    def in_flight_bytes(self) -> int:
        """Number of bytes in flight."""
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
    """A connection with two directions: ``up`` to the broker, ``down`` to the client."""

    def __init__(self, network: Network, client: str, index: int) -> None:
        self.client = client
        self.index = index
        self.up = Direction(network, client, "up")
        self.down = Direction(network, client, "down")

    @property
    def is_open(self) -> bool:
        """True if bytes can still arrive in a direction."""
        return self.up.is_open or self.down.is_open

    def close_from_client(self) -> None:
        """Close from the client: it reads no more bytes, and the broker notices later."""
        self.down.drop_silently()
        self.up.close()

    def reset_from_client(self) -> None:
        """Reset from the client: the bytes that it has sent and that are in flight are lost."""
        self.down.drop_silently()
        self.up.abort()

    def close_from_broker(self) -> None:
        """Close from the broker, or after its process died: the client notices later."""
        self.up.drop_silently()
        self.down.close()


class ConnectionAcceptor(Protocol):
    """A broker that accepts connections."""

    def accept(self, connection: SimConnection) -> ConnectionEnd | None:
        """Return the broker's end of a new connection, or None if the broker is down."""


class Network:
    """All connections and the current network faults."""

    def __init__(self, clock: Clock, rng: Random, delay_max_ms: int, split_share: float) -> None:
        self.clock = clock
        self.brokers: dict[int, ConnectionAcceptor] = {}  # by broker id
        self.connections: list[SimConnection] = []
        self._rng = rng
        self._delay_max_ms = delay_max_ms
        self._split_share = split_share
        self._slow: tuple[int, int] = (0, 0)  # end of the slow period, and the longest delay
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
        """Open a connection to a broker. ``done`` gets it, or None if the broker refuses."""

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
        """Return a random delay for the next bytes."""
        until_ms, slow_ms = self._slow
        longest = slow_ms if self.clock.now_ms < until_ms else self._delay_max_ms
        return self._rng.randrange(longest + 1)

    def split(self, data: bytes) -> list[bytes]:
        """Return the pieces in which bytes arrive: unchanged, two parts, or the first bytes one by
        one.
        """
        if not self._split_share or self._rng.random() >= self._split_share or len(data) < 2:
            return [data]
        if self._rng.random() < 0.3:
            head = min(len(data) - 1, 6)
            return [data[at : at + 1] for at in range(head)] + [data[head:]]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]

    # Faults

    def slow_down(self, longest_ms: int, for_ms: int) -> None:
        """Delay bytes by up to ``longest_ms`` for a time."""
        self._slow = (self.clock.now_ms + for_ms, longest_ms)

    def cut(self, client: str, way: str, for_ms: int) -> None:
        """Block one direction for a time; bytes that are sent wait."""
        self._cuts[client, way] = self.clock.now_ms + for_ms

    def cut_until(self, client: str, way: str) -> int:
        """Return the time when the direction is open again."""
        return self._cuts.get((client, way), 0) if self._cuts else 0

    def refuse_connections(self, for_ms: int) -> None:
        """Refuse new connections for a time."""
        self._refused_until_ms = self.clock.now_ms + for_ms

    def heal(self) -> None:
        """End all faults. Bytes that are already delayed keep their arrival times."""
        self._slow = (0, 0)
        self._cuts.clear()
        self._refused_until_ms = 0
        self._split_share = 0.0
