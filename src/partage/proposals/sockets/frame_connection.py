"""A connection that exchanges frames.

A frame above 64 KiB takes memory from a pool, step by step as it arrives. While the pool has none,
the connection reads nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from partage.broker.net.memory_pool import MemoryPool
from partage.proposals.sockets.codec import Codec
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

log = logging.getLogger(__name__)

#: A peer with more unread bytes loses its connection.
WRITE_BYTES_MAX: Final = 16 << 20
_CLOSE_TIMEOUT_S: Final = 5.0
#: Frames up to this size are not counted.
_SMALL_FRAME_BYTES: Final = 64 << 10
_GROWTH_BYTES: Final = 1 << 20
#: A peer whose machine was lost is noticed after 30 s: the system asks for a sign of life after
#: 15 s without data, and then every 5 s.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_UNACKNOWLEDGED_MAX_MS: Final = 30_000


class FrameConnection(asyncio.Protocol):
    """One connection with its codec.

    It stops to read while its peer does not read, or while the shell has suspended it.

    Args:
        codec: The codec of this connection.
        on_opened: Called when the connection is open.
        on_frame: Called with each frame, in order.
        on_lost: Called once when the peer or an error has closed the connection. It is not called
            after `close`.
        on_drained: Called when the peer has read what waited, after ``is_peer_slow``.
        pool: The memory of all large frames together; None without a limit.

    Attributes:
        last_frame_s: When the last frame arrived, on the clock of the event loop.
        last_data_s: When the last bytes arrived, or the pool last gave memory.
        is_peer_slow: True while much of what was sent waits for the peer.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        on_opened: Callable[[FrameConnection], None],
        on_frame: Callable[[FrameConnection, bytes], None],
        on_lost: Callable[[FrameConnection, str], None],
        on_drained: Callable[[FrameConnection], None] = lambda connection: None,
        pool: MemoryPool | None = None,
    ) -> None:
        self.codec = codec
        self.peer = "unknown"
        self.last_frame_s = 0.0
        self.last_data_s = 0.0
        self.is_peer_slow = False
        self._on_opened = on_opened
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._on_drained = on_drained
        self._pool = pool
        self._reserved_bytes = 0  # of the pool, for the first frame of the buffer
        self._requested_bytes = 0
        self._is_waiting_for_memory = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_suspended = False
        self._is_closing = False
        self._is_at_end = False  # the peer has closed, and frames of it are still in the buffer
        self._lost_reason = "closed by its peer"

    def __repr__(self) -> str:
        return f"<FrameConnection {self.peer}>"

    @property
    def is_open(self) -> bool:
        """True if messages can be sent."""
        return self._transport is not None and not self._is_closing

    @property
    def unsent_bytes(self) -> int:
        """The bytes that wait for the peer, in the memory of this process."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def has_partial_frame(self) -> bool:
        """True if a frame that holds memory of the pool has not arrived completely."""
        return bool(self._reserved_bytes) and not self._is_waiting_for_memory

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
        self._drop_buffer()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(_CLOSE_TIMEOUT_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once, without the messages that are not sent yet."""
        self._is_closing = True
        self._drop_buffer()
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
        if self._is_suspended or self.is_peer_slow or self._is_waiting_for_memory:
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
            self._release_memory()
        if self._is_closing or self._is_suspended:
            return
        if self._is_at_end:
            self._is_closing = True
            self._drop_buffer()
            self._on_lost(self, self._lost_reason)
        else:
            self._reserve_memory()

    # Memory of large frames

    def _reserve_memory(self) -> None:
        """Take memory for the next bytes of an incomplete frame, or wait for it."""
        pool, received = self._pool, len(self._buffer)
        if pool is None or self._is_waiting_for_memory or received <= _SMALL_FRAME_BYTES:
            return
        size = self.codec.first_frame_bytes(self._buffer)
        if size is None or received < self._reserved_bytes or self._reserved_bytes >= size:
            return
        lacking = size - self._reserved_bytes
        count = min(lacking, max(_GROWTH_BYTES, received))
        self._is_waiting_for_memory = not pool.try_allocate(
            count, lacking, self._on_memory_granted, is_first=not self._reserved_bytes
        )
        if self._is_waiting_for_memory:
            self._requested_bytes = count
            self._update_reading()
        else:
            self._reserved_bytes += count

    def _on_memory_granted(self) -> None:
        self._is_waiting_for_memory = False
        self._reserved_bytes += self._requested_bytes
        self.last_data_s = self._loop.time()
        self._update_reading()

    def _release_memory(self) -> None:
        """Return the memory of a frame that is complete, or that will not be."""
        if self._pool is None:
            return
        if self._is_waiting_for_memory:
            self._is_waiting_for_memory = False
            self._pool.cancel_wait(self._on_memory_granted)
            self._update_reading()
        count, self._reserved_bytes = self._reserved_bytes, 0
        if count:
            self._pool.release(count)

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._release_memory()

    # Implementation of `asyncio.Protocol`.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._is_closing:  # it was cancelled while it was opened
            transport.abort()
            return
        self._transport = transport
        self.last_frame_s = self.last_data_s = self._loop.time()
        _detect_lost_peer(transport.get_extra_info("socket"))
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "unknown"
        self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        if not self._is_closing:
            self.last_data_s = self._loop.time()
            self._buffer += data
            self._read_frames()

    def pause_writing(self) -> None:
        self.is_peer_slow = True
        self._update_reading()

    def resume_writing(self) -> None:
        self.is_peer_slow = False
        self._update_reading()
        self._on_drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.is_peer_slow:
            self.is_peer_slow = False
            self._on_drained(self)
        if exc is not None:
            self._lost_reason = str(exc)
        self._is_at_end = True
        self._read_frames()


def _detect_lost_peer(sock: Any) -> None:
    """Let the system close a connection whose peer does not answer, such as a lost machine."""
    if getattr(sock, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return
    options = (*_KEEPALIVE, ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MAX_MS))
    with suppress(OSError):  # some systems refuse options of a connection that is closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options:
            number = getattr(socket, name, None)  # some systems lack some of them
            if number is not None:
                sock.setsockopt(socket.IPPROTO_TCP, number, value)
