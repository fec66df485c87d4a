"""The reassembly of frames from a stream of bytes."""

from __future__ import annotations

from typing import Final

from partage.wire.frames import FRAME_LENGTH
from partage.wire.records.decoder import pooled_buffer
from partage.wire.types import Buffer

_SCRATCH: Final = 64 * 1024
_FIRST_ROOM: Final = 16 * 1024 * 1024  # A fetch response of normal size fits without growing


class InvalidFrameSizeError(ValueError):
    """A frame size is zero, negative or too large; ``start`` holds its first four bytes."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the frame size is {size} bytes; it must be 1 to {size_max}")
        self.start = FRAME_LENGTH.pack(size)


class FrameReader:
    """Reassembles frames; the interface follows ``asyncio.BufferedProtocol``.

    Small frames are copied out of a reused buffer. A frame that does not fit gets a separate
    buffer, and the rest is received directly into it. That buffer grows with the received bytes, by
    doubling. So a peer that announces much and sends little uses little memory, and no byte is
    copied more than twice.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._tail = b""  # Fewer bytes than a length field
        self._frame: memoryview | None = None
        self._filled = self._size = 0

    def free_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._frame is None:
            return self._scratch
        return self._frame[self._filled :]

    @property
    def missing_bytes(self) -> int:
        """Number of bytes missing in the current frame; 0 between two frames."""
        return 0 if self._frame is None else self._size - self._filled

    def receive(self, count: int) -> list[Buffer]:
        """Return the frames that are complete after ``count`` more bytes arrived in `free_buffer`.

        The caller owns the frames. Raises `InvalidFrameSizeError`.
        """
        if self._frame is None:
            return self._split(self._scratch[:count])
        self._filled += count
        if self._filled < self._size:
            if self._filled == len(self._frame):
                self._grow(self._frame)
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _grow(self, full: memoryview) -> None:
        self._frame = pooled_buffer(min(2 * len(full), self._size))
        self._frame[: len(full)] = full

    def _split(self, chunk: memoryview) -> list[Buffer]:
        held = memoryview(self._tail + chunk) if self._tail else chunk
        frames: list[Buffer] = []
        pos, end = 0, len(held)
        while end - pos >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(held, pos)
            if not 0 < size <= self._frame_bytes_max:
                raise InvalidFrameSizeError(size, self._frame_bytes_max)
            pos += FRAME_LENGTH.size
            if size > end - pos:
                self._begin(size, held[pos:])
                self._tail = b""
                return frames
            frames.append(bytearray(held[pos : pos + size]))
            pos += size
        self._tail = bytes(held[pos:])
        return frames

    def _begin(self, size: int, start: memoryview) -> None:
        self._size = size
        self._filled = len(start)
        self._frame = pooled_buffer(min(size, _FIRST_ROOM))
        self._frame[: len(start)] = start
