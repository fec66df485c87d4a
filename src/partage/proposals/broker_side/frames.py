"""The frames of the messages: an int32 size, then the fields of the document in their order.

Numbers are big-endian. A string has an int16 length, a list an int16 count, a boolean is one byte.
Requests, and the responses of consumers, begin with their type. The responses of brokers have none,
so the reader must know which request it sent.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    RequestType,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    ThreadOwnership,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Message


class _Number:
    """A number of fixed size."""

    def __init__(self, fmt: str) -> None:
        self._struct = struct.Struct(">" + fmt)

    def encode(self, out: bytearray, value: int) -> None:
        try:
            out += self._struct.pack(value)
        except struct.error as error:
            raise ValueError(f"{value} does not fit the field: {error}") from error

    def decode(self, reader: _Reader) -> int:
        (value,) = self._struct.unpack(reader.take(self._struct.size))
        return int(value)


class _Boolean:
    """One byte, 0 or 1."""

    def encode(self, out: bytearray, value: bool) -> None:
        out.append(value)

    def decode(self, reader: _Reader) -> bool:
        (value,) = reader.take(1)
        if value > 1:
            raise MalformedError(f"boolean {value} at byte {reader.position - 1} is not 0 or 1")
        return bool(value)


class _Text:
    """A UTF-8 string after its length."""

    def encode(self, out: bytearray, value: str) -> None:
        data = value.encode()
        INT16.encode(out, len(data))
        out += data

    def decode(self, reader: _Reader) -> str:
        size = reader.count("string length")
        begin = reader.position
        try:
            return reader.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedError(f"string at byte {begin} is not UTF-8: {error}") from error


class _List:
    """Structures after their count."""

    def __init__(self, item: type[Message], *, is_optional: bool = False) -> None:
        self._item = item
        self._is_optional = is_optional

    def encode(self, out: bytearray, values: list[Message] | None) -> None:
        if values is None:
            return
        INT16.encode(out, len(values))
        for value in values:
            _encode_fields(out, value)

    def decode(self, reader: _Reader) -> list[Message] | None:
        if self._is_optional and reader.is_at_end:
            return None
        return [_decode_fields(reader, self._item) for _ in range(reader.count("count"))]


INT16: Final = _Number("h")
INT32: Final = _Number("i")
INT64: Final = _Number("q")
_STRING: Final = _Text()
_OFFSETS: Final = _List(PartitionOffset, is_optional=True)
_BROKERS: Final = _List(BrokerAddress)

_RESPONSE_FIELDS: Final = {"error_code": INT16, "consumer_id": _STRING, "offset_info": _OFFSETS}

#: The fields after the size and the type.
_FIELDS: Final[Mapping[type[Message], Mapping[str, Any]]] = {
    BrokerAddress: {"id": INT32, "host": _STRING, "port": INT32},
    PartitionOffset: {"topic": _STRING, "partition": _STRING, "offset": INT64},
    ThreadOwnership: {"consumer_thread_id": _STRING, "assigned_parts": _List(PartitionOffset)},
    ClusterMetadataRequest: {},
    ClusterMetadataResponse: {
        "error_code": INT16,
        "coordinator_id": INT32,
        "brokers_info": _BROKERS,
    },
    RegisterConsumerRequest: {
        "group_id": _STRING,
        "consumer_id": _STRING,
        "topic_count": _STRING,
        "auto_commit": _Boolean(),
        "auto_offset_rest": _STRING,
        "session_timeout_ms": INT32,
    },
    RegisterConsumerResponse: {"error_code": INT16},
    PingRequest: {"consumer_id": _STRING, "num_retries": INT32},
    PingResponse: _RESPONSE_FIELDS,
    StopFetcherRequest: {"consumer_id": _STRING},
    StopFetcherResponse: _RESPONSE_FIELDS,
    StartFetcherRequest: {
        "consumer_id": _STRING,
        "ownership_info": _List(ThreadOwnership),
        "brokers_info": _BROKERS,
    },
    StartFetcherResponse: {"error_code": INT16, "consumer_id": _STRING},
}

#: What a broker receives, by type.
_TO_BROKER: Final[Mapping[int, type[Message]]] = {
    RequestType.CLUSTER_METADATA: ClusterMetadataRequest,
    RequestType.REGISTER_CONSUMER: RegisterConsumerRequest,
    RequestType.PING: PingResponse,
    RequestType.STOP_FETCHER: StopFetcherResponse,
    RequestType.START_FETCHER: StartFetcherResponse,
}

#: The requests that a consumer receives, by type.
_TO_CONSUMER: Final[Mapping[int, type[Message]]] = {
    RequestType.PING: PingRequest,
    RequestType.STOP_FETCHER: StopFetcherRequest,
    RequestType.START_FETCHER: StartFetcherRequest,
}

_TYPE_IDS: Final = {
    message: type_id for table in (_TO_BROKER, _TO_CONSUMER) for type_id, message in table.items()
}


class _Reader:
    """The bytes of one frame; positions count from its first byte."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.position = 0
        size = INT32.decode(self)
        if size != len(frame) - self.position:
            raise MalformedError(
                f"size {size} at byte 0 of a frame with {len(frame) - self.position} bytes after it"
            )

    @property
    def is_at_end(self) -> bool:
        return self.position == len(self._frame)

    def take(self, size: int) -> bytes:
        data = self._frame[self.position : self.position + size]
        if len(data) < size:
            raise MalformedError(
                f"{size} bytes expected at byte {self.position}; the frame has {len(data)}"
            )
        self.position += size
        return data

    def count(self, name: str) -> int:
        value = INT16.decode(self)
        if value < 0:
            raise MalformedError(f"{name} {value} at byte {self.position - 2} is negative")
        return value

    def finish(self) -> None:
        if not self.is_at_end:
            left = len(self._frame) - self.position
            raise MalformedError(f"{left} bytes left at byte {self.position}")


def _encode_fields(out: bytearray, message: Message) -> None:
    for name, kind in _FIELDS[type(message)].items():
        kind.encode(out, getattr(message, name))


def _decode_fields(reader: _Reader, message: type[Message]) -> Message:
    fields = _FIELDS[message]
    return message(**{name: kind.decode(reader) for name, kind in fields.items()})


def encode_frame(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        ValueError: A number, string or list is too large for its field.
    """
    body = bytearray()
    type_id = _TYPE_IDS.get(type(message))
    if type_id is not None:
        INT16.encode(body, type_id)
    _encode_fields(body, message)
    return len(body).to_bytes(4, "big") + body


def _decode_typed(frame: bytes, table: Mapping[int, type[Message]]) -> Message:
    reader = _Reader(frame)
    type_id = INT16.decode(reader)
    message_type = table.get(type_id)
    if message_type is None:
        raise MalformedError(f"unknown type {type_id} at byte 4")
    message = _decode_fields(reader, message_type)
    reader.finish()
    return message


def decode_at_broker(frame: bytes) -> Message:
    """Decode a request, or a response of a consumer, that a broker received.

    Raises:
        MalformedError: The frame does not follow the document.
    """
    return _decode_typed(frame, _TO_BROKER)


def decode_at_consumer(frame: bytes) -> Message:
    """Decode a request of the coordinator that a consumer received.

    Raises:
        MalformedError: The frame does not follow the document.
    """
    return _decode_typed(frame, _TO_CONSUMER)


def decode_response(frame: bytes, response: type[Message]) -> Message:
    """Decode the response of a broker, which has no type.

    Args:
        frame: The frame.
        response: `ClusterMetadataResponse` or `RegisterConsumerResponse`.

    Raises:
        MalformedError: The frame does not follow the document.
    """
    reader = _Reader(frame)
    message = _decode_fields(reader, response)
    reader.finish()
    return message
