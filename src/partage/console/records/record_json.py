"""A record as one line of JSON: what ``consume --json`` prints and ``produce --format json`` reads.

Bytes that are UTF-8 stand as text. Others stand in base64, and ``key_encoding``,
``value_encoding`` or a header's ``encoding`` says so; those three are left out for text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

Encoding: TypeAlias = Literal["base64"]
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_TIMESTAMP_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


class RecordParseError(ValueError):
    """A line that is no record; it says why."""


class ProducerRecord(NamedTuple):
    """A record on its way to a topic. The broker's clock where ``timestamp_ms`` is None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class JsonHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A header; its value may be null."""

    key: str
    value: str | None
    encoding: Encoding | None = None


class ConsumedRecord(Protocol):
    """A consumed record: librdkafka's, or one that is like it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...


class JsonRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as ``partage consume --json`` prints it.

    ``timestamp`` is in milliseconds since 1970, ``timestamp_type`` CreateTime or LogAppendTime;
    both are null in records without a time.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: str | None
    key: str | None
    value: str | None
    headers: list[JsonHeader]
    key_encoding: Encoding | None = None
    value_encoding: Encoding | None = None


class JsonLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as ``partage produce --format json`` reads it.

    ``key`` and ``value`` may be any JSON: strings are sent as their text, null as no bytes,
    anything else as its JSON. ``headers`` is an object, or a list as ``consume --json`` has it.
    ``timestamp`` is at least 1, as librdkafka takes 0 for now.
    ``topic``, ``offset`` and ``timestamp_type`` may stand there and mean nothing.
    """

    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    headers: dict[str, str | None] | list[JsonHeader] = {}
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    key_encoding: Encoding | None = None
    value_encoding: Encoding | None = None
    topic: str | None = None
    offset: int | None = None
    timestamp_type: str | None = None


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(JsonLine)


def to_json(message: ConsumedRecord) -> bytes:
    """The record as one line of JSON, without a line's end."""
    kind, timestamp = message.timestamp()
    key, key_encoding = _text(message.key())
    value, value_encoding = _text(message.value())
    record = JsonRecord(
        topic=message.topic() or "",
        partition=_number(message.partition()),
        offset=_number(message.offset()),
        timestamp=timestamp if kind in _TIMESTAMP_TYPES else None,
        timestamp_type=_TIMESTAMP_TYPES.get(kind),
        key=key,
        value=value,
        headers=[JsonHeader(name, *_text(content)) for name, content in headers_of(message)],
        key_encoding=key_encoding,
        value_encoding=value_encoding,
    )
    return _encoder.encode(record)


def from_json(line: bytes) -> ProducerRecord | None:
    """The record in a line of JSON; None for a blank line.

    Raises:
        RecordParseError: the line is not JSON, or no record.
    """
    if not line.strip():
        return None
    try:
        read = _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise RecordParseError(f"{error}") from error
    given = read.headers
    listed = (
        [JsonHeader(key, value) for key, value in given.items()]
        if isinstance(given, dict)
        else given
    )
    return ProducerRecord(
        value=_content(read.value, read.value_encoding, "value"),
        key=_content(read.key, read.key_encoding, "key"),
        headers=[
            (each.key, _bytes(each.value, each.encoding, f"header {each.key}")) for each in listed
        ],
        partition=read.partition,
        timestamp_ms=read.timestamp,
    )


def headers_of(message: ConsumedRecord) -> Headers:
    """A record's headers in order, with bytes as values."""
    found = message.headers() or []
    listed = found.items() if isinstance(found, dict) else found
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in listed]


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _text(content: bytes | None) -> tuple[str | None, Encoding | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def _content(raw: msgspec.Raw, encoding: Encoding | None, what: str) -> bytes | None:
    json = bytes(raw)
    if json == b"null":
        return None
    if json.startswith(b'"'):
        return _bytes(msgspec.json.decode(json, type=str), encoding, what)
    if encoding:
        raise RecordParseError(f"its {what} is not a string, but its encoding is {encoding}")
    return json


def _bytes(text: str | None, encoding: Encoding | None, what: str) -> bytes | None:
    if text is None:
        return None
    if encoding is None:
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RecordParseError(f"its {what} is not base64: {error}") from error
