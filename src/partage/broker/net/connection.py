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

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.large_frame import LargeFrame
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.produce import PRODUCE
from partage.wire.frames import FRAME_LENGTH, parse_request_header, parse_request_prefix
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

if TYPE_CHECKING:
    from partage.broker.net.server import Server

log = logging.getLogger(__name__)

SCRATCH_SIZE: Final = 256 * 1024
_LARGE_FRAME_BYTES: Final = 64 * 1024  # frames from here on are received into a buffer of their own
_OVERLAP_BYTES_MAX: Final = 4 * 1024 * 1024  # of large Produce requests of one connection
_SEND_BATCH_BYTES: Final = 64 * 1024  # bytes of answers that are gathered before they are sent


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket."""

    def __init__(self, server: Server) -> None:
        self.client_host = ""
        self.last_active_ms = 0
        #: Called when the client goes away, by the request that waits for something.
        self.on_lost: Callable[[], None] | None = None
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._closing_transport: asyncio.Transport | None = (
            None  # closed, and may have something to send
        )
        self._large: LargeFrame | None = None
        self._partial_frame = b""  # the beginning of a frame
        self._backlog: deque[Buffer] = deque()
        self._in_flight: deque[InboundRequest] = deque()
        self._overlapping: dict[InboundRequest, int] = {}  # large Produce requests and their sizes
        self._unsent_bytes = 0
        self._received_ms = 0
        self._is_processing = False
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
        self._server.add_connection(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; what it asked for of a group is not taken back, as in Kafka."""
        self._transport = self._closing_transport = None
        self._is_closing = True
        self._drop_backlog()
        if self._large is not None:
            self._large.cancel()
            self._large = None
        self._set_unsent_bytes(0)
        if self.on_lost is not None:
            self.on_lost()
        self._server.remove_connection(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: a large frame's own buffer, or the one that all share."""
        return self._server.scratch if self._large is None else self._large.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        self._received_ms = self.last_active_ms = self._server.clock.now_ms()
        if self._large is None:
            self._split_frames(self._server.scratch[:nbytes])
        else:
            self._large.on_received(nbytes)
            if self._large.is_complete:
                self._backlog.append(self._large.buffer)
                self._large = None
        self._process()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: serve it no further."""
        self._is_writable = False
        if self._transport is not None:
            self._set_unsent_bytes(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_writable = True
        self._set_unsent_bytes(0)
        self._process()

    def _set_unsent_bytes(self, byte_count: int) -> None:
        self._server.unsent_bytes += byte_count - self._unsent_bytes
        self._unsent_bytes = byte_count

    # Frames.

    def _split_frames(self, chunk: memoryview) -> None:
        data: Buffer = self._partial_frame + bytes(chunk) if self._partial_frame else chunk
        pos, end = 0, len(data)
        while end - pos >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(data, pos)
            if not 0 < size <= self._server.limits.request_bytes_max:
                self.close_for_error(
                    f"the request size is {size} bytes; accepted are 1 to "
                    f"{self._server.limits.request_bytes_max} bytes"
                )
                return
            start = pos + FRAME_LENGTH.size
            if size > end - start:
                if size >= _LARGE_FRAME_BYTES:
                    self._large = LargeFrame(
                        size, data[start:], self._server.memory_pool, self._on_memory_granted
                    )
                    pos = end
                break
            self._backlog.append(bytes(data[start : start + size]))
            pos = start + size
        self._partial_frame = bytes(data[pos:])

    def _on_memory_granted(self) -> None:
        """A large request may go on that was held up; its client was not idle all that time."""
        self.last_active_ms = self._server.clock.now_ms()
        self._process()

    def _process(self) -> None:
        """Serve what may be served now, send what may be sent, read on or pause."""
        if self._is_processing:
            return
        self._is_processing = True
        backlog, in_flight = self._backlog, self._in_flight
        outgoing: list[Buffer] = []
        gathered = 0
        try:
            while True:
                while in_flight and in_flight[0].is_done:
                    done = in_flight.popleft()
                    outgoing += done.response_buffers
                    if backlog:
                        gathered += sum(map(len, done.response_buffers))
                    if self._overlapping:
                        self._server.memory_pool.release(self._overlapping.pop(done, 0))
                if gathered > _SEND_BATCH_BYTES and self._transport is not None:
                    # At once, so that a client that does not read its answers is noticed.
                    self._server.send(self._transport, outgoing)
                    outgoing, gathered = [], 0
                if not backlog or not self._may_start(backlog[0]):
                    break
                self._start_request(backlog.popleft())
        finally:
            self._is_processing = False
        if self._transport is None:
            return
        if outgoing:
            self._server.send(self._transport, outgoing)
        if self._is_closing:
            self.close()
        elif backlog or self._large is not None or not self._is_reading:
            self._update_reading()

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

    def _update_reading(self) -> None:
        """Read no further while a request waits to be served, or for room to arrive in."""
        if self._transport is None:
            return
        may_read = not self._backlog and (
            self._large is None or not self._large.is_waiting_for_memory
        )
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
                self._server.memory_pool.release(len(frame))

    # Requests.

    def _start_request(self, frame: Buffer) -> None:
        inbound = None
        try:
            inbound = self._decode(frame)
        except MalformedError as error:
            self.close_for_error(str(error))
        if inbound is not None:
            self._in_flight.append(inbound)
            try:
                self._server.handlers[inbound.api.key](inbound)
            except Exception:  # a fault of ours: this client alone loses its connection
                log.exception("request handler failed: api=%r", inbound.api)
                self.close()
                inbound = None  # nobody ends it, so nobody would give its room back
        if type(frame) is bytearray:
            self._on_large_handled(len(frame), inbound)

    def _on_large_handled(self, size: int, inbound: InboundRequest | None) -> None:
        """Give a large frame's room back, of a Produce not before its records are written."""
        if inbound is not None and inbound.api is PRODUCE and not inbound.is_done:
            self._overlapping[inbound] = size
        else:
            self._server.memory_pool.release(size)

    def _decode(self, frame: Buffer) -> InboundRequest | None:
        key, version, correlation_id = parse_request_prefix(frame)
        api = self._server.apis.get(key)
        if api is None or not api.supports(version):
            if key != API_VERSIONS.key:
                name = f"API {key}" if api is None else api.name
                self.close_for_error(f"{name} version {version} is not supported")
                return None
            # KIP-511: whatever was asked, the answer to this one can be read by everybody.
            return InboundRequest(
                self, API_VERSIONS, 0, correlation_id, "", None, self._received_ms
            )
        limit = self._server.limits.frame_bytes_max(key)
        if len(frame) > limit:
            raise MalformedError(
                f"the {api.name} request has {len(frame)} bytes; at most {limit} are accepted"
            )
        client_id, pos = parse_request_header(api, version, frame)
        message = api.decode_request(version, frame, pos)
        return InboundRequest(
            self, api, version, correlation_id, client_id or "", message, self._received_ms
        )

    def on_serving(self) -> None:
        """The server has begun to serve."""
        self._process()

    def on_response_ready(self) -> None:
        """A request of this connection has its response."""
        if not self._is_processing:
            self._process()

    def close_for_error(self, why: str) -> None:
        """Close the connection for what the client did, and say so once."""
        log.warning("closed the connection of %s: %s", self.client_host, why)
        self.close()

    def close(self) -> None:
        """Close the connection; answers that were sent still arrive."""
        self._drop_backlog()
        self._is_closing = True
        if self._transport is not None and not self._is_processing:
            self._transport.close()
            self._closing_transport, self._transport = self._transport, None

    def abort(self) -> None:
        """Close the connection at once, whatever is unsent: for a client that takes nothing."""
        self.close()
        if self._closing_transport is not None:
            self._closing_transport.abort()

    @property
    def response_bytes_max(self) -> int:
        """How large an answer should be at most."""
        return self._server.response_bytes_max

    @property
    def has_pending_work(self) -> bool:
        """Whether it is for us to go on: the client waits for an answer, or for room."""
        return bool(self._in_flight) or (
            self._large is not None and self._large.is_waiting_for_memory
        )

    @property
    def has_stalled_request(self) -> bool:
        """Whether a large request has room and makes no use of it: the rest of it does not come,
        or it stands behind something that takes its time, or behind answers that nobody reads.
        """
        if self._large is not None:
            return not self._large.is_waiting_for_memory
        is_writing = bool(self._in_flight) and self._in_flight[0].api is PRODUCE
        return not is_writing and any(type(frame) is bytearray for frame in self._backlog)
