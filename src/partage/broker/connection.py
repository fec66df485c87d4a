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
from partage.broker.large_frame import LargeFrame
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.produce import PRODUCE
from partage.wire.frames import FRAME_LENGTH, parse_request_header, parse_request_prefix
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

if TYPE_CHECKING:
    from partage.broker.server import Server

log = logging.getLogger(__name__)

SCRATCH_SIZE: Final = 256 * 1024
_LARGE: Final = 64 * 1024  # frames from here on are received into a buffer of their own
_OVERLAP_BYTES_MAX: Final = 4 * 1024 * 1024  # of large Produce requests of one connection
_SENT_TOGETHER: Final = 64 * 1024  # bytes of answers that are gathered before they are sent


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket."""

    def __init__(self, server: Server) -> None:
        self.client_host = ""
        self.last_active_ms = 0
        #: Called when the client goes away, by the request that waits for something.
        self.when_lost: Callable[[], None] | None = None
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._ending: asyncio.Transport | None = None  # closed, and may have something to send
        self._large: LargeFrame | None = None
        self._tail = b""  # the beginning of a frame
        self._backlog: deque[Buffer] = deque()
        self._in_flight: deque[Inbound] = deque()
        self._overlapping: dict[Inbound, int] = {}  # large Produce requests and their sizes
        self._unsent_bytes = 0
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
        self._transport = self._ending = None
        self._is_closing = True
        self._drop_backlog()
        if self._large is not None:
            self._large.give_up()
            self._large = None
        self._note_unsent(0)
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
        else:
            self._large.received(nbytes)
            if self._large.is_complete:
                self._backlog.append(self._large.buffer)
                self._large = None
        self._pump()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: serve it no further."""
        self._is_writable = False
        if self._transport is not None:
            self._note_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_writable = True
        self._note_unsent(0)
        self._pump()

    def _note_unsent(self, byte_count: int) -> None:
        self._server.unsent_bytes += byte_count - self._unsent_bytes
        self._unsent_bytes = byte_count

    # Frames.

    def _split(self, chunk: memoryview) -> None:
        data: Buffer = self._tail + bytes(chunk) if self._tail else chunk
        pos, end = 0, len(data)
        while end - pos >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(data, pos)
            if not 0 < size <= self._server.limits.request_bytes_max:
                self.refuse(
                    f"a request claims {size} bytes; between 1 and "
                    f"{self._server.limits.request_bytes_max} are accepted"
                )
                return
            start = pos + FRAME_LENGTH.size
            if size > end - start:
                if size >= _LARGE:
                    self._large = LargeFrame(
                        size, data[start:], self._server.budget, self._got_room
                    )
                    pos = end
                break
            self._backlog.append(bytes(data[start : start + size]))
            pos = start + size
        self._tail = bytes(data[pos:])

    def _got_room(self) -> None:
        """A large request may go on that was held up; its client was not idle all that time."""
        self.last_active_ms = self._server.clock.now_ms()
        self._pump()

    def _pump(self) -> None:
        """Serve what may be served now, send what may be sent, read on or pause."""
        if self._is_pumping:
            return
        self._is_pumping = True
        backlog, in_flight = self._backlog, self._in_flight
        outgoing: list[Buffer] = []
        gathered = 0
        try:
            while True:
                while in_flight and in_flight[0].is_done:
                    done = in_flight.popleft()
                    outgoing += done.outgoing
                    if backlog:
                        gathered += sum(map(len, done.outgoing))
                    if self._overlapping:
                        self._server.budget.give(self._overlapping.pop(done, 0))
                if gathered > _SENT_TOGETHER and self._transport is not None:
                    # At once, so that a client that does not read its answers is noticed.
                    self._server.send(self._transport, outgoing)
                    outgoing, gathered = [], 0
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
        elif backlog or self._large is not None or not self._is_reading:
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
            and sum(self._overlapping.values()) < _OVERLAP_BYTES_MAX
        )

    def _regulate(self) -> None:
        """Read no further while a request waits to be served, or for room to arrive in."""
        if self._transport is None:
            return
        may_read = not self._backlog and (self._large is None or not self._large.is_held_up)
        if may_read is self._is_reading:
            return
        self._is_reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _drop_backlog(self) -> None:
        while self._backlog:
            frame = self._backlog.popleft()
            if type(frame) is bytearray:
                self._server.budget.give(len(frame))

    # Requests.

    def _start(self, frame: Buffer) -> None:
        inbound = None
        try:
            inbound = self._decode(frame)
        except MalformedError as error:
            self.refuse(str(error))
        if inbound is not None:
            self._in_flight.append(inbound)
            try:
                self._server.handlers[inbound.api.key](inbound)
            except Exception:  # a fault of ours: this client alone loses its connection
                log.exception("serving %r failed", inbound.api)
                self.close()
                inbound = None  # nobody ends it, so nobody would give its room back
        if type(frame) is bytearray:
            self._served_large(len(frame), inbound)

    def _served_large(self, size: int, inbound: Inbound | None) -> None:
        """Give a large frame's room back, of a Produce not before its records are written."""
        if inbound is not None and inbound.api is PRODUCE and not inbound.is_done:
            self._overlapping[inbound] = size
        else:
            self._server.budget.give(size)

    def _decode(self, frame: Buffer) -> Inbound | None:
        key, version, correlation_id = parse_request_prefix(frame)
        api = self._server.apis.get(key)
        if api is None or not api.supports(version):
            if key != API_VERSIONS.key:
                name = f"API {key}" if api is None else api.name
                self.refuse(f"{name} version {version} is not spoken here")
                return None
            # KIP-511: whatever was asked, the answer to this one can be read by everybody.
            return Inbound(self, API_VERSIONS, 0, correlation_id, "", None, self._received_ms)
        limit = self._server.limits.frame_bytes_max(key)
        if len(frame) > limit:
            raise MalformedError(f"{api.name} of {len(frame)} bytes; {limit} are accepted")
        client_id, pos = parse_request_header(api, version, frame)
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
        self._drop_backlog()
        self._is_closing = True
        if self._transport is not None and not self._is_pumping:
            self._transport.close()
            self._ending, self._transport = self._transport, None

    def abort(self) -> None:
        """Close the connection at once, whatever is unsent: for a client that takes nothing."""
        self.close()
        if self._ending is not None:
            self._ending.abort()

    @property
    def sendable_bytes(self) -> int:
        """How large an answer should be at most."""
        return self._server.sendable_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether it is for us to go on: the client waits for an answer, or for room."""
        return bool(self._in_flight) or (self._large is not None and self._large.is_held_up)

    @property
    def keeps_room(self) -> bool:
        """Whether a large request has room and makes no use of it: the rest of it does not come,
        or it stands behind something that takes its time, or behind answers that nobody reads.
        """
        if self._large is not None:
            return not self._large.is_held_up
        is_writing = bool(self._in_flight) and self._in_flight[0].api is PRODUCE
        return not is_writing and any(type(frame) is bytearray for frame in self._backlog)
