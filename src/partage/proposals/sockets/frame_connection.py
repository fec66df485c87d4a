"""A connection that exchanges frames."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from partage.proposals.sockets.codec import Codec
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

log = logging.getLogger(__name__)

#: A peer with more unread bytes loses its connection.
WRITE_BYTES_MAX: Final = 16 << 20
_CLOSE_TIMEOUT_S: Final = 5.0


class FrameConnection(asyncio.Protocol):
    """One connection with its codec.

    It stops to read while its peer does not read, or while the shell has suspended it.

    Args:
        codec: The codec of this connection.
        on_opened: Called when the connection is open.
        on_frame: Called with each frame, in order.
        on_lost: Called once when the peer or an error has closed the connection. It is not called
            after `close`.

    Attributes:
        last_frame_s: When the last frame arrived, on the clock of the event loop.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        on_opened: Callable[[FrameConnection], None],
        on_frame: Callable[[FrameConnection, bytes], None],
        on_lost: Callable[[FrameConnection, str], None],
    ) -> None:
        self.codec = codec
        self.peer = "unknown"
        self.last_frame_s = 0.0
        self._on_opened = on_opened
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_suspended = False
        self._is_peer_slow = False
        self._is_closing = False
        self._is_at_end = False  # the peer has closed, and frames of it are still in the buffer
        self._lost_reason = "closed by its peer"

    def __repr__(self) -> str:
        return f"<FrameConnection {self.peer}>"

    @property
    def is_open(self) -> bool:
        """True if messages can be sent."""
        return self._transport is not None and not self._is_closing

    def send(self, message: Message) -> None:
        """Send a message. A message that does not fit its frame closes the connection."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        try:
            frame = self.codec.encode(message)
        except ValueError as error:
            log.error("cannot encode %s for %s: %s", type(message).__name__, self.peer, error)
            self.lose(f"a {type(message).__name__} does not fit its frame")
            return
        # Before the message is added: a single message may be larger than the limit.
        if transport.get_write_buffer_size() > WRITE_BYTES_MAX:
            self.lose(f"its peer has not read {WRITE_BYTES_MAX} bytes")
            return
        transport.write(frame)

    def suspend(self, *, is_suspended: bool) -> None:
        """Stop to read, or continue. Frames that have arrived wait."""
        if is_suspended is self._is_suspended:
            return
        self._is_suspended = is_suspended
        self._update_reading()
        if not is_suspended:
            self._loop.call_soon(self._read_frames)

    def close(self) -> None:
        """Close after the messages that were sent. ``on_lost`` is not called."""
        if self._is_closing:
            return
        self._is_closing = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(_CLOSE_TIMEOUT_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once, without the messages that are not sent yet."""
        self._is_closing = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()

    def lose(self, reason: str) -> None:
        """Close the connection for a fault of the peer; then ``on_lost``."""
        if self._is_closing:
            return
        self._lost_reason = reason
        self.abort()
        self._loop.call_soon(self._on_lost, self, reason)

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_suspended or self._is_peer_slow:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _read_frames(self) -> None:
        while not self._is_closing and not self._is_suspended:
            try:
                frame = self.codec.split(self._buffer)
            except MalformedError as error:
                self.lose(str(error))
                return
            if frame is None:
                break
            self.last_frame_s = self._loop.time()
            self._on_frame(self, frame)
        if self._is_at_end and not self._is_suspended and not self._is_closing:
            self._is_closing = True
            self._on_lost(self, self._lost_reason)

    # Implementation of `asyncio.Protocol`.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._is_closing:  # it was cancelled while it was opened
            transport.abort()
            return
        self._transport = transport
        self.last_frame_s = self._loop.time()
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "unknown"
        self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        if not self._is_closing:
            self._buffer += data
            self._read_frames()

    def pause_writing(self) -> None:
        self._is_peer_slow = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._is_peer_slow = False
        self._update_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is not None:
            self._lost_reason = str(exc)
        self._is_at_end = True
        self._read_frames()
