"""One client's connection: frames in, responses out, in order and within limits.

Requests of one connection are served one after the other, as Kafka does it: a Heartbeat behind a
parked JoinGroup waits. Only Produce requests may overlap, so that those of one connection share a
sync; their responses still leave in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from partage.broker.inbound import Inbound
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.produce import PRODUCE
from partage.wire.frames import LENGTH, client_id_and_body, request_start
from partage.wire.primitives import Malformed
from partage.wire.types import Buffer

if TYPE_CHECKING:
    from partage.broker.server import Server

log = logging.getLogger(__name__)

SCRATCH_SIZE: Final = 256 * 1024
_LARGE: Final = 64 * 1024  # frames from here on are received into a buffer of their own
_GROWTH: Final = 1024 * 1024


class _LargeFrame:
    """A frame on its way in; its buffer grows with what has arrived, not with what is claimed."""

    __slots__ = ("buffer", "filled", "size")

    def __init__(self, size: int, start: Buffer) -> None:
        self.size = size
        self.filled = len(start)
        self.buffer = bytearray(min(size, max(_GROWTH, 2 * len(start))))
        self.buffer[: len(start)] = start

    def room(self) -> memoryview:
        return memoryview(self.buffer)[self.filled :]

    def is_complete(self, arrived: int) -> bool:
        self.filled += arrived
        if self.filled == len(self.buffer) < self.size:
            # A new one: the loop still holds its view of the old one, which pins that one's size.
            grown = bytearray(min(2 * self.filled, self.size))
            grown[: self.filled] = self.buffer
            self.buffer = grown
        return self.filled == self.size


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket."""

    def __init__(self, server: Server) -> None:
        self.client_host = ""
        self.last_active_ms = 0
        #: Called when the client goes away, by the request that waits for something.
        self.when_lost: Callable[[], None] | None = None
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._large: _LargeFrame | None = None
        self._tail = b""  # the beginning of a frame
        self._backlog: deque[Buffer] = deque()
        self._in_flight: deque[Inbound] = deque()
        self._received_ms = 0
        self._is_pumping = False
        self._is_closing = False
        self._is_reading = True
        self._is_writable = True

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; beyond the limit it is turned away at once."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour only
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if peer else "/unknown"
        self.last_active_ms = self._server.clock.now_ms()
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; what it asked for of a group is not taken back, as in Kafka."""
        self._transport = None
        self._is_closing = True
        self._backlog.clear()
        if self.when_lost is not None:
            self.when_lost()
        self._server.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: a large frame's own buffer, or the one that all share."""
        return self._server.scratch if self._large is None else self._large.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        self._received_ms = self.last_active_ms = self._server.clock.now_ms()
        if self._large is None:
            self._split(self._server.scratch[:nbytes])
        elif self._large.is_complete(nbytes):
            frame, self._large = self._large.buffer, None
            self._backlog.append(frame)
        self._pump()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: serve it no further."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_writable = True
        self._pump()

    # Frames.

    def _split(self, chunk: memoryview) -> None:
        data: Buffer = self._tail + bytes(chunk) if self._tail else chunk
        pos, end = 0, len(data)
        while end - pos >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, pos)
            if not 0 < size <= self._server.limits.request_bytes_max:
                self.refuse(
                    f"a request claims {size} bytes; between 1 and "
                    f"{self._server.limits.request_bytes_max} are accepted"
                )
                return
            start = pos + LENGTH.size
            if size > end - start:
                if size >= _LARGE:
                    self._large = _LargeFrame(size, data[start:])
                    pos = end
                break
            self._backlog.append(bytes(data[start : start + size]))
            pos = start + size
        self._tail = bytes(data[pos:])

    def _pump(self) -> None:
        """Serve what may be served now, send what may be sent, read on or pause."""
        if self._is_pumping:
            return
        self._is_pumping = True
        backlog, in_flight = self._backlog, self._in_flight
        outgoing: list[Buffer] = []
        try:
            while True:
                while in_flight and in_flight[0].is_done:
                    outgoing += in_flight.popleft().outgoing
                if not backlog or not self._may_start(backlog[0]):
                    break
                self._start(backlog.popleft())
        finally:
            self._is_pumping = False
        if self._transport is None:
            return
        if outgoing:
            self._server.send(self._transport, outgoing)
        if self._is_closing:
            self.close()
        elif backlog or in_flight or not self._is_reading:
            self._regulate()

    def _may_start(self, frame: Buffer) -> bool:
        if self._is_closing or not self._is_writable or not self._server.handlers:
            return False
        if not self._in_flight:
            return True
        key = PRODUCE.key
        return (
            self._in_flight[-1].api.key == key
            and len(frame) >= 2
            and frame[0] << 8 | frame[1] == key
            and len(self._in_flight) < self._server.limits.requests_in_flight_max
        )

    def _regulate(self) -> None:
        """Stop reading from a client that is far ahead of its answers."""
        if self._transport is None:
            return
        waiting = len(self._backlog) + len(self._in_flight)
        limit = self._server.limits.requests_in_flight_max
        if self._is_reading and waiting >= limit:
            self._is_reading = False
            self._transport.pause_reading()
        elif not self._is_reading and waiting <= limit // 2:
            self._is_reading = True
            self._transport.resume_reading()

    # Requests.

    def _start(self, frame: Buffer) -> None:
        try:
            inbound = self._decode(frame)
        except Malformed as error:
            self.refuse(str(error))
            return
        if inbound is None:
            return
        self._in_flight.append(inbound)
        try:
            self._server.handlers[inbound.api.key](inbound)
        except Exception:  # a fault of ours: this client loses its connection, nobody else anything
            log.exception("serving %r failed", inbound.api)
            self.close()

    def _decode(self, frame: Buffer) -> Inbound | None:
        key, version, correlation_id = request_start(frame)
        api = self._server.apis.get(key)
        if api is None or not api.speaks(version):
            if key != API_VERSIONS.key:
                name = f"API {key}" if api is None else api.name
                self.refuse(f"{name} version {version} is not spoken here")
                return None
            # KIP-511: whatever was asked, the answer to this one can be read by everybody.
            return Inbound(self, API_VERSIONS, 0, correlation_id, "", None, self._received_ms)
        limit = self._server.limits.bytes_max(key)
        if len(frame) > limit:
            raise Malformed(f"{api.name} of {len(frame)} bytes; {limit} are accepted")
        client_id, pos = client_id_and_body(api, version, frame)
        message = api.decode_request(version, frame, pos)
        return Inbound(
            self, api, version, correlation_id, client_id or "", message, self._received_ms
        )

    def served(self) -> None:
        """The server has begun to serve."""
        self._pump()

    def answered(self) -> None:
        """A request of this connection has its response."""
        if not self._is_pumping:
            self._pump()

    def refuse(self, why: str) -> None:
        """Close the connection for what the client did, and say so once."""
        log.warning("closing the connection of %s: %s", self.client_host, why)
        self.close()

    def close(self) -> None:
        """Close the connection; answers that were sent still arrive."""
        self._backlog.clear()
        self._is_closing = True
        if self._transport is not None and not self._is_pumping:
            self._transport.close()
            self._transport = None

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer."""
        return bool(self._in_flight)
