"""The codecs of the first design's connections.

The responses of brokers have no type. So a consumer's codec must know which request it sent.
"""

from __future__ import annotations

from typing import Final

from partage.proposals.broker_side.frames import (
    decode_at_broker,
    decode_at_consumer,
    decode_response,
    encode_frame,
)
from partage.proposals.broker_side.messages import (
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    RequestType,
)
from partage.proposals.sockets.codec import Codec
from partage.wire.types import Message

#: A registration has four strings of at most 32,767 bytes.
_UNREGISTERED_BYTES_MAX: Final = 160 << 10
#: 32,767 offsets, each with a topic of at most 249 bytes.
_REGISTERED_BYTES_MAX: Final = 10 << 20
_TYPE: Final = slice(4, 6)


class BrokerCodec(Codec):
    """The frames of one connection at a broker."""

    def __init__(self) -> None:
        self.frame_bytes_max = _UNREGISTERED_BYTES_MAX
        self._is_registered = False

    @property
    def has_open_request(self) -> bool:
        """True for a registered consumer: it answers pings, which may be hours apart."""
        return self._is_registered

    def encode(self, message: Message) -> bytes:
        if isinstance(message, RegisterConsumerResponse) and not message.error_code:
            self.frame_bytes_max = _REGISTERED_BYTES_MAX
            self._is_registered = True
        return encode_frame(message)

    def decode(self, frame: bytes) -> Message:
        return decode_at_broker(frame)

    def error_response(self, frame: bytes) -> Message | None:
        """Answer damaged requests with an error. Damaged responses of consumers get none."""
        match int.from_bytes(frame[_TYPE], "big"):
            case RequestType.CLUSTER_METADATA:
                return ClusterMetadataResponse(
                    error_code=PushError.UNKNOWN, coordinator_id=-1, brokers_info=[]
                )
            case RequestType.REGISTER_CONSUMER:
                return RegisterConsumerResponse(error_code=PushError.INVALID_REGISTRATION)
        return None


class BrokerListCodec(Codec):
    """The frames of a consumer's connection to a broker of its list."""

    def encode(self, message: Message) -> bytes:
        assert isinstance(message, ClusterMetadataRequest), f"unexpected message {message}"
        return encode_frame(message)

    def decode(self, frame: bytes) -> Message:
        return decode_response(frame, ClusterMetadataResponse)


class ConsumerCodec(Codec):
    """The frames of a consumer's connection to the coordinator."""

    def __init__(self) -> None:
        self.frame_bytes_max = _REGISTERED_BYTES_MAX
        self._is_registering = False

    def encode(self, message: Message) -> bytes:
        if isinstance(message, RegisterConsumerRequest):
            self._is_registering = True
        return encode_frame(message)

    def decode(self, frame: bytes) -> Message:
        if self._is_registering:
            self._is_registering = False
            return decode_response(frame, RegisterConsumerResponse)
        return decode_at_consumer(frame)
