"""The codecs of connections with the frames of Kafka's protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from partage.proposals.join_group.frames import CoordinatorFrames, MemberFrames, ProtocolVersions
from partage.proposals.sockets.codec import Codec
from partage.wire.types import Buffer, Message

#: The metadata or the assignment of a large group. Kafka has the same limit for requests.
_FRAME_BYTES_MAX: Final = 100 << 20


class CoordinatorCodec(Codec):
    """The frames of one connection at a coordinator.

    Args:
        versions: The requests of the design.
    """

    frame_bytes_max = _FRAME_BYTES_MAX

    def __init__(self, versions: ProtocolVersions) -> None:
        self._frames = CoordinatorFrames(versions)

    def encode(self, message: Message) -> bytes:
        return _join(self._frames.encode, message)

    def decode(self, frame: bytes) -> Message:
        return self._frames.decode(frame)

    @property
    def has_open_request(self) -> bool:
        return self._frames.has_open_request


class MemberCodec(Codec):
    """The frames of one connection at a member.

    Args:
        versions: The requests of the design.
    """

    frame_bytes_max = _FRAME_BYTES_MAX

    def __init__(self, versions: ProtocolVersions) -> None:
        self._frames = MemberFrames(versions)

    def encode(self, message: Message) -> bytes:
        return _join(self._frames.encode, message)

    def decode(self, frame: bytes) -> Message:
        return self._frames.decode(frame)


def _join(encode: Callable[[Message], list[Buffer]], message: Message) -> bytes:
    try:
        return b"".join(encode(message))
    except struct.error as error:
        raise ValueError(str(error)) from error
