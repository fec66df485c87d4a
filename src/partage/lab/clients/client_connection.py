"""A client's end of a connection: responses arrive in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from partage.lab.environment.clock import Clock
from partage.lab.environment.network import Network, SimConnection
from partage.wire.api import AnyApi
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from partage.wire.types import Message

ResponseCallback = Callable[[Any], None]


class ClientConnection:
    """One connection of a client to a broker.

    Args:
        network: The simulated network.
        client: The client's name.
        broker_id: The broker to connect to.
        versions_below_newest: How many versions below the newest the client uses of each API.
        versions: The versions of the APIs for which the client uses a certain one, by API key.
        on_lost: Called when the connection is lost or a request times out. The connection cannot be
            used after that.
        when_awake: Defers a call while the client's process is paused.
    """

    def __init__(
        self,
        network: Network,
        client: str,
        broker_id: int,
        versions_below_newest: int,
        on_lost: Callable[[], None],
        when_awake: Callable[[Callable[[], None]], None] = lambda call: call(),
        versions: Mapping[int, int] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.is_open = False
        self.is_closed = False
        self._network = network
        self._clock: Clock = network.clock
        self._client = client
        self._versions_below_newest = versions_below_newest
        self._on_lost = on_lost
        self._when_awake = when_awake
        self._versions = versions or {}
        self._connection: SimConnection | None = None
        self._in_flight: deque[tuple[int, AnyApi, int, ResponseCallback, int]] = deque()
        self._next_check_ms: int | None = None  # time of the next timeout check
        self._correlation_id = 0
        self._tail = b""

    def open(self, on_opened: Callable[[bool], None]) -> None:
        """Connect. ``on_opened`` is called with True on success."""

        def connected(connection: SimConnection | None) -> None:
            if self.is_closed:
                if connection is not None:
                    connection.close_from_client()
                return
            self._connection = connection
            self.is_open = connection is not None
            self.is_closed = connection is None
            on_opened(self.is_open)

        self._network.connect(
            self._client,
            self.broker_id,
            self,
            lambda found: self._when_awake(lambda: connected(found)),
        )

    def version(self, api: AnyApi) -> int:
        """Return the version of an API that this client speaks. Fetch stays below v13, which has
        topic ids instead of names.
        """
        if api.key in self._versions:
            return self._versions[api.key]
        newest = min(api.by_name_max, 12)
        return max(api.version_min, newest - self._versions_below_newest)

    def send(
        self, api: AnyApi, message: Message, on_response: ResponseCallback, timeout_ms: int
    ) -> bool:
        """Send a request.

        Args:
            api: The API of the request.
            message: The request.
            on_response: Called with the decoded response.
            timeout_ms: Request timeout.

        Returns:
            False if the connection is closed.
        """
        connection = self._connection
        if connection is None or not self.is_open:
            return False
        self._correlation_id += 1
        serial, version = self._correlation_id, self.version(api)
        body = api.encode_request(version, message)
        until_ms = self._clock.now_ms + timeout_ms
        self._in_flight.append((serial, api, version, on_response, until_ms))
        connection.up.send(b"".join(encode_request_frame(api, version, serial, self._client, body)))
        if self._next_check_ms is None or until_ms < self._next_check_ms:
            self._schedule_check(until_ms)
        return True

    def send_bytes(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        if self._connection is not None and self.is_open:
            self._connection.up.send(data)

    def _schedule_check(self, at_ms: int) -> None:
        """Schedule the next timeout check. Only the earliest scheduled check counts."""
        self._next_check_ms = at_ms
        self._clock.call_later(
            at_ms - self._clock.now_ms,
            lambda: self._when_awake(lambda: self._check_timeouts(at_ms)),
        )

    def _check_timeouts(self, at_ms: int) -> None:
        if at_ms != self._next_check_ms:
            return
        self._next_check_ms = None
        if not self._in_flight or not self.is_open:
            return
        until_ms = min(until_ms for *_, until_ms in self._in_flight)
        if until_ms > self._clock.now_ms:
            self._schedule_check(until_ms)
        else:
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the connection and drop requests in flight."""
        self.is_closed = True
        if self.is_open and self._connection is not None:
            self.is_open = False
            self._in_flight.clear()
            self._connection.close_from_client()

    def abort(self) -> None:
        """Close the connection. Requests that have not arrived yet are lost."""
        self.close()
        if self._connection is not None:
            self._connection.reset_from_client()

    def drop_silently(self) -> None:
        """Stop without closing the connection, as after a machine failure."""
        self.is_open, self.is_closed = False, True
        if self._connection is not None:
            self._connection.down.drop_silently()

    def connection_lost(self) -> None:
        """Handle the loss of the connection."""
        self._when_awake(self._lose)

    def _lose(self) -> None:
        if self.is_open:
            self.is_open, self.is_closed = False, True
            self._in_flight.clear()
            self._on_lost()

    def data_received(self, data: bytes) -> None:
        """Read received bytes, after the pause if the process is paused."""
        self._when_awake(lambda: self._read(data))

    def _read(self, data: bytes) -> None:
        data = self._tail + data if self._tail else data
        pos = 0
        while self.is_open and len(data) - pos >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(data, pos)
            start = pos + FRAME_LENGTH.size
            if size > len(data) - start:
                break
            pos = start + size
            self._complete_request(data[start:pos])
        self._tail = data[pos:]

    def _complete_request(self, frame: bytes) -> None:
        if not self._in_flight:
            return  # a response to bytes sent by `send_bytes`
        serial, api, version, on_response, _ = self._in_flight.popleft()
        correlation_id, pos = parse_response_header(api, version, frame)
        assert correlation_id == serial, f"the responses of {api} are out of order"
        on_response(api.decode_response(version, frame, pos))
