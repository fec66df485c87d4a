"""A client's end of a connection: requests out, responses in, in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from partage.lab.nature.clock import Clock
from partage.lab.nature.network import Connection, Network
from partage.wire.api import AnyApi
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from partage.wire.types import Message

Heard = Callable[[Any], None]


class Link:
    """One connection of a client to a broker; after ``lost`` it is of no more use.

    ``version_cap`` says how many versions below its newest the client speaks of each API.
    """

    def __init__(
        self,
        network: Network,
        client: str,
        broker_id: int,
        version_cap: int,
        on_lost: Callable[[], None],
        when_awake: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> None:
        self.broker_id = broker_id
        self.is_open = False
        self.is_over = False
        self._network = network
        self._clock: Clock = network.clock
        self._client = client
        self._version_cap = version_cap
        self._on_lost = on_lost
        self._when_awake = when_awake
        self._connection: Connection | None = None
        self._waiting: deque[tuple[int, AnyApi, int, Heard, int]] = deque()
        self._look_ms: int | None = None  # when patience is looked at next
        self._correlation_id = 0
        self._tail = b""

    def open(self, done: Callable[[bool], None]) -> None:
        """Connect; ``done`` hears whether that went well."""

        def connected(connection: Connection | None) -> None:
            if self.is_over:
                if connection is not None:
                    connection.close_from_client()
                return
            self._connection = connection
            self.is_open = connection is not None
            self.is_over = connection is None
            done(self.is_open)

        self._network.connect(
            self._client,
            self.broker_id,
            self,
            lambda found: self._when_awake(lambda: connected(found)),
        )

    def version(self, api: AnyApi) -> int:
        """The version of an API that this client speaks; of Fetch one that names its topics."""
        newest = min(api.version_max, 12)
        return max(api.version_min, newest - self._version_cap)

    def send(self, api: AnyApi, message: Message, heard: Heard, patience_ms: int) -> bool:
        """Send a request; False if the connection is gone."""
        connection = self._connection
        if connection is None or not self.is_open:
            return False
        self._correlation_id += 1
        serial, version = self._correlation_id, self.version(api)
        body = api.encode_request(version, message)
        until_ms = self._clock.now_ms + patience_ms
        self._waiting.append((serial, api, version, heard, until_ms))
        connection.up.send(b"".join(encode_request_frame(api, version, serial, self._client, body)))
        if self._look_ms is None or until_ms < self._look_ms:
            self._look_at(until_ms)
        return True

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        if self._connection is not None and self.is_open:
            self._connection.up.send(data)

    def _look_at(self, at_ms: int) -> None:
        """Look then whether an answer is overdue; one look is under way, that at the earliest."""
        self._look_ms = at_ms
        self._clock.later(
            at_ms - self._clock.now_ms, lambda: self._when_awake(lambda: self._look(at_ms))
        )

    def _look(self, at_ms: int) -> None:
        if at_ms != self._look_ms:
            return
        self._look_ms = None
        if not self._waiting or not self.is_open:
            return
        until_ms = min(until_ms for *_, until_ms in self._waiting)
        if until_ms > self._clock.now_ms:
            self._look_at(until_ms)
        else:
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the connection; what is owed on it is not heard any more."""
        self.is_over = True
        if self.is_open and self._connection is not None:
            self.is_open = False
            self._waiting.clear()
            self._connection.close_from_client()

    def vanish(self) -> None:
        """The machine is gone, without a word to anybody."""
        self.is_open, self.is_over = False, True
        if self._connection is not None:
            self._connection.down.vanish()

    def lost(self) -> None:
        """The connection is gone."""
        self._when_awake(self._lose)

    def _lose(self) -> None:
        if self.is_open:
            self.is_open, self.is_over = False, True
            self._waiting.clear()
            self._on_lost()

    def received(self, data: bytes) -> None:
        """Bytes arrived; a process that stands still reads them when it goes on."""
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
            self._hear(data[start:pos])
        self._tail = data[pos:]

    def _hear(self, frame: bytes) -> None:
        if not self._waiting:
            return  # to bytes that were sent as they are
        serial, api, version, heard, _ = self._waiting.popleft()
        correlation_id, pos = parse_response_header(api, version, frame)
        assert correlation_id == serial, f"{api} is answered out of order"
        heard(api.decode_response(version, frame, pos))
