"""A client connection: frames in, responses out, in order and within limits.

As in Kafka, the requests of a connection are served one after the other: a Heartbeat behind a
parked JoinGroup waits. Only Produce requests may overlap, so that those of one connection share an
fsync. Their responses are still sent in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.large_frame import LargeFrame
from partage.broker.net.repeated_request import RepeatedRequest, is_repeated
from partage.broker.net.shared_resources import SharedResources
from partage.broker.net.turn_limiter import is_limited
from partage.model.printable import printable
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.produce import PRODUCE
from partage.wire.frames import (
    FRAME_LENGTH,
    parse_correlation_id,
    parse_request_header,
    parse_request_prefix,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

_FRAME_LENGTH_BYTES: Final = FRAME_LENGTH.size
# frames of at least this size are received into a separate buffer
_LARGE_FRAME_BYTES: Final = 64 * 1024
_OVERLAP_BYTES_MAX: Final = 4 * 1024 * 1024  # limit for large Produce requests of one connection
_SEND_BATCH_BYTES: Final = 64 * 1024  # bytes of responses to collect before sending


class Connection(asyncio.BufferedProtocol):
    """Protocol of one client socket."""

    def __init__(
        self,
        resources: SharedResources,
        *,
        on_opened: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.client_host = ""
        self.last_active_ms = 0
        #: Called when the connection is lost; set by a request that waits for data.
        self.on_lost: Callable[[], None] | None = None
        self._resources = resources
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._closing_transport: asyncio.Transport | None = (
            None  # closed, but may still have bytes to send
        )
        self._large: LargeFrame | None = None
        self._partial_frame = b""  # the beginning of the next frame
        self._backlog: deque[Buffer] = deque()
        self._in_flight: deque[InboundRequest] = deque()
        self._overlapping: dict[InboundRequest, int] = {}  # large Produce requests and their sizes
        self._unsent_bytes = 0
        self._request_ms = 0  # the time of the request that starts now
        self._repeated: RepeatedRequest | None = None
        self._is_processing = False
        self._is_awaiting_turn = False
        self._has_turn = False
        self._is_sending_due = False  # in the next turn of the loop
        self._is_closing = False
        self._is_reading = True
        self._is_writable = True

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; the server closes it at once if there are too many."""
        # uvloop's transport does not inherit from it
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if peer else "/unknown"
        self.last_active_ms = self._resources.clock.now_ms()
        self._on_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's resources. As in Kafka, its group requests are not cancelled."""
        self._transport = self._closing_transport = None
        self._is_closing = True
        self._drop_backlog()
        if self._large is not None:
            self._large.cancel()
            self._large = None
        self._set_unsent_bytes(0)
        try:
            if self.on_lost is not None:
                self.on_lost()
        finally:
            self._on_closed(self)  # the server waits for it when it closes

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: that of a large frame, or the shared one."""
        return self._resources.scratch if self._large is None else self._large.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._request_ms = self.last_active_ms = self._resources.clock.now_ms()
        if self._large is None:
            chunk = self._resources.scratch[:nbytes]
            may_start = not (
                self._in_flight
                or self._backlog
                or self._partial_frame
                or self._is_processing
                or self._is_closing
            )
            if may_start and self._is_writable and self._is_reading and self._serve_single(chunk):
                return
            self._split_frames(chunk)
        else:
            self._large.on_received(nbytes)
            if self._large.is_complete:
                self._backlog.append(self._large.buffer)
                self._large = None
        self._process()

    def pause_writing(self) -> None:
        """Stop serving the client: it does not read its responses."""
        self._is_writable = False
        if self._transport is not None:
            self._set_unsent_bytes(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue: the client reads its responses again."""
        self._is_writable = True
        self._set_unsent_bytes(0)
        self._process()

    def _set_unsent_bytes(self, byte_count: int) -> None:
        self._resources.unsent_bytes += byte_count - self._unsent_bytes
        self._unsent_bytes = byte_count

    def _serve_single(self, chunk: memoryview) -> bool:
        """Serve a complete request that no other one precedes or follows, without the queues.

        This is the usual case: a client sends its next request after a response. The steps for
        other cases have the same effect.

        Returns:
            False if it is not such a request, or may not start now; then nothing has changed.
        """
        if not self._resources.handlers:
            return False
        repeated = self._repeated
        if (
            repeated is not None
            and len(chunk) == repeated.received_size
            and repeated.is_received(data := bytes(chunk))
        ):
            inbound = self._repeat(repeated, data, _FRAME_LENGTH_BYTES)
        else:
            size = len(chunk) - _FRAME_LENGTH_BYTES
            if not 0 < size <= self._resources.limits.request_bytes_max:
                return False
            frame = bytes(chunk[_FRAME_LENGTH_BYTES:])
            if FRAME_LENGTH.unpack_from(chunk)[0] != size or is_limited(frame):
                return False
            try:
                decoded = self._decode(frame)
            except MalformedError as error:
                self.close_for_error(str(error))
                return True
            if decoded is None:
                return True
            inbound = decoded
        self._is_processing = True
        try:
            self._handle(inbound)
        finally:
            self._is_processing = False
        if inbound.is_done and not self._is_closing and self._transport is not None:
            self._in_flight.popleft()
            buffers = inbound.response_buffers
            if len(buffers) == 1:
                self._transport.write(buffers[0])
            elif buffers:
                self._resources.send(self._transport, buffers)
        else:
            self._process()
        return True

    def _split_frames(self, chunk: memoryview) -> None:
        data: Buffer = self._partial_frame + bytes(chunk) if self._partial_frame else chunk
        pos, end = 0, len(data)
        bytes_max = self._resources.limits.request_bytes_max
        while (start := pos + _FRAME_LENGTH_BYTES) <= end:
            (size,) = FRAME_LENGTH.unpack_from(data, pos)
            if not 0 < size <= bytes_max:
                start_bytes = bytes(data[pos:start])
                if self._resources.unsupported_requests.is_foreign(self.client_host, start_bytes):
                    self.close()
                    return
                self.close_for_error(
                    f"the request size is {size} bytes; accepted are 1 to {bytes_max} bytes"
                )
                return
            stop = start + size
            if stop > end:
                if size >= _LARGE_FRAME_BYTES:
                    self._large = LargeFrame(
                        size, data[start:], self._resources.memory_pool, self._on_memory_granted
                    )
                    pos = end
                break
            self._backlog.append(bytes(data[start:stop]))
            pos = stop
        self._partial_frame = bytes(data[pos:]) if pos < end else b""

    def _on_memory_granted(self) -> None:
        """Continue a large request that waited for memory; the client was not idle in that time."""
        self.last_active_ms = self._resources.clock.now_ms()
        self._process()

    def _process(self) -> None:
        """Start requests that may start, send finished responses, pause or resume reading."""
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
                    if self._overlapping:
                        self._resources.memory_pool.release(self._overlapping.pop(done, 0))
                    if backlog:
                        gathered += sum(map(len, done.response_buffers))
                        if gathered > _SEND_BATCH_BYTES and self._transport is not None:
                            # Now, so that a client that does not read its responses is noticed.
                            self._resources.send(self._transport, outgoing)
                            outgoing, gathered = [], 0
                if not backlog or not self._may_start(backlog[0]):
                    break
                self._start_request(backlog.popleft())
        finally:
            self._is_processing = False
        if self._transport is None:
            return
        if outgoing:
            self._resources.send(self._transport, outgoing)
        if self._is_closing:
            self.close()
        elif backlog or self._large is not None or not self._is_reading:
            self._update_reading()

    def _may_start(self, frame: Buffer) -> bool:
        if self._is_closing or not self._is_writable or not self._resources.handlers:
            return False
        if not self._in_flight:
            return not is_limited(frame) or self._take_turn()
        key = PRODUCE.key
        return (
            self._in_flight[-1].api.key == key
            and len(frame) >= 2
            and frame[0] << 8 | frame[1] == key
            and len(self._in_flight) < self._resources.limits.requests_in_flight_max
            and sum(self._overlapping.values()) < _OVERLAP_BYTES_MAX
        )

    def _take_turn(self) -> bool:
        """Return True if the next request may start now; it is one of a `TurnLimiter`."""
        if self._has_turn:
            self._has_turn = False
            return True
        if self._is_awaiting_turn:
            return False
        self._is_awaiting_turn = not self._resources.turns.take_turn(self._on_turn)
        return not self._is_awaiting_turn

    def _on_turn(self) -> None:
        """Start the request that waited for its turn, unless the connection was closed."""
        self._is_awaiting_turn = False
        self._has_turn = True
        self._process()
        self._has_turn = False

    def _update_reading(self) -> None:
        """Pause reading while a request waits to start, or waits for memory.

        A request that waits for its turn alone pauses nothing: thousands may wait for a moment.
        """
        if self._transport is None:
            return
        awaiting_turn = 1 if self._is_awaiting_turn else 0
        may_read = len(self._backlog) <= awaiting_turn and (
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
                self._resources.memory_pool.release(len(frame))

    def _start_request(self, frame: Buffer) -> None:
        inbound = None
        # It may have waited behind an earlier request. The session of a member counts from now: it
        # could do no more to show that it lives.
        self._request_ms = self._resources.clock.now_ms()
        try:
            inbound = self._decode(frame)
        except MalformedError as error:
            self.close_for_error(str(error))
        if inbound is not None:
            is_handled = self._handle(inbound)
            if not is_handled:
                inbound = None  # it will never be completed, so its memory is released now
        if type(frame) is bytearray:
            self._on_large_handled(len(frame), inbound)

    def _handle(self, inbound: InboundRequest) -> bool:
        """Call the handler of a request; return False if it failed."""
        self._in_flight.append(inbound)
        try:
            self._resources.handlers[inbound.api.key](inbound)
        except Exception:  # a bug in the handler: only this client loses its connection
            log.exception("request handler failed: api=%r", inbound.api)
            self.close()
            return False
        return True

    def _on_large_handled(self, size: int, inbound: InboundRequest | None) -> None:
        """Release the memory of a large frame; for Produce only after its records are written."""
        if inbound is not None and inbound.api is PRODUCE and not inbound.is_done:
            self._overlapping[inbound] = size
        else:
            self._resources.memory_pool.release(size)

    def _decode(self, frame: Buffer) -> InboundRequest | None:
        repeated = self._repeated
        if repeated is not None and repeated.matches(frame):
            return self._repeat(repeated, frame)
        key, version, correlation_id = parse_request_prefix(frame)
        api = self._resources.apis.get(key)
        if api is None or not api.supports(version):
            if key != API_VERSIONS.key:
                self._resources.unsupported_requests.report(self.client_host, frame)
                self.close()
                return None
            # KIP-511: every client can read version 0 of this response, whatever version it
            # requested.
            return InboundRequest(self, API_VERSIONS, 0, correlation_id, "", None, self._request_ms)
        limit = self._resources.limits.frame_bytes_max(key)
        if len(frame) > limit:
            raise MalformedError(
                f"the {api.name} request has {len(frame)} bytes; at most {limit} are accepted"
            )
        client_id, pos = parse_request_header(api, version, frame)
        message = api.decode_request(version, frame, pos)
        inbound = InboundRequest(
            self, api, version, correlation_id, client_id or "", message, self._request_ms
        )
        if is_repeated(key, frame):
            inbound.repeated = self._repeated = RepeatedRequest(
                frame, api, version, inbound.client_id, message
            )
        return inbound

    def _repeat(self, repeated: RepeatedRequest, data: Buffer, begin: int = 0) -> InboundRequest:
        """Return a repeated request; its frame begins at ``begin``."""
        return InboundRequest(
            self,
            repeated.api,
            repeated.version,
            parse_correlation_id(data, begin),
            repeated.client_id,
            repeated.message,
            self._request_ms,
            repeated,
        )

    def on_serving(self) -> None:
        """Start waiting requests: the server has its handlers now."""
        self._process()

    def on_response_ready(self) -> None:
        """Continue: a request of this connection has its response.

        Produce requests that overlap often complete together. Their responses are sent together in
        the next turn of the loop: each system call may have to wake the client.
        """
        if self._is_processing or self._is_sending_due:
            return
        if len(self._in_flight) == 1:
            self._process()
            return
        self._is_sending_due = True
        asyncio.get_running_loop().call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._is_sending_due = False
        self._process()

    def close_for_error(self, why: str) -> None:
        """Close the connection because of a client error, and log the reason."""
        log.warning("closed the connection of %s: %s", self.client_host, printable(why))
        self.close()

    def close(self) -> None:
        """Close the connection; responses that were sent still arrive."""
        self._drop_backlog()
        self._is_closing = True
        if self._is_sending_due:
            self._send_ready()
        if self._transport is not None and not self._is_processing:
            self._transport.close()
            self._closing_transport, self._transport = self._transport, None

    def abort(self) -> None:
        """Close the connection at once and drop unsent bytes, for a client that does not read."""
        self.close()
        if self._closing_transport is not None:
            self._closing_transport.abort()

    @property
    def response_bytes_max(self) -> int:
        """Maximum size of the next response."""
        return self._resources.response_bytes_max

    @property
    def has_pending_work(self) -> bool:
        """True if the client waits for the broker: for a response, or for memory."""
        return bool(self._in_flight) or (
            self._large is not None and self._large.is_waiting_for_memory
        )

    @property
    def has_stalled_request(self) -> bool:
        """True if a large request holds memory without progress.

        The rest of the request does not arrive, or it waits behind a slow request, or behind
        responses that the client does not read.
        """
        if self._large is not None:
            return not self._large.is_waiting_for_memory
        is_writing = bool(self._in_flight) and self._in_flight[0].api is PRODUCE
        return not is_writing and any(type(frame) is bytearray for frame in self._backlog)
