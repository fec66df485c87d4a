"""The frames of one connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from partage.wire.primitives import MalformedError
from partage.wire.types import Message

_SIZE_BYTES: Final = 4


class Codec(ABC):
    """The encoder and decoder of one connection.

    A codec may keep state, such as the request that the next response answers. The base class
    splits frames with an int32 size at their beginning, which does not count itself.

    Attributes:
        frame_bytes_max: The largest size of a frame that is read. It may change between frames.
    """

    frame_bytes_max: int = 1 << 20

    def split(self, buffer: bytearray) -> bytes | None:
        """Remove and return the first frame of a buffer, with its size; None if it is incomplete.

        Raises:
            MalformedError: No frame can follow.
        """
        end = self.first_frame_bytes(buffer)
        if end is None or len(buffer) < end:
            return None
        frame = bytes(buffer[:end])
        del buffer[:end]
        return frame

    def first_frame_bytes(self, buffer: bytearray) -> int | None:
        """Return the bytes of the first frame of a buffer, with its size; None if it has no size.

        Raises:
            MalformedError: The size is invalid.
        """
        if len(buffer) < _SIZE_BYTES:
            return None
        size = int.from_bytes(buffer[:_SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self.frame_bytes_max:
            raise MalformedError(f"frame size {size} is not between 0 and {self.frame_bytes_max}")
        return _SIZE_BYTES + size

    @property
    def has_open_request(self) -> bool:
        """True if a request waits for its response, so that the peer has nothing to send."""
        return False

    @abstractmethod
    def encode(self, message: Message) -> bytes:
        """Return the frame of a message.

        Raises:
            ValueError: A value is too large for its field.
        """

    @abstractmethod
    def decode(self, frame: bytes) -> Message:
        """Return the message of a frame.

        Raises:
            MalformedError: The frame does not follow the design.
        """

    def error_response(self, frame: bytes) -> Message | None:
        """Return the response to a frame that `decode` rejected, or None to close the connection.

        After a response, the connection stays open.
        """
        return None
