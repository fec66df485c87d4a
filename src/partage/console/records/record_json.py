"""Records as lines of JSON, for ``consume --json`` and ``produce --format json``.

UTF-8 bytes are text. Other bytes are base64, marked by ``key_encoding``, ``value_encoding`` or a
header's ``encoding``. These three keys are omitted for text.
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
    """Raised for a line that is not a record; the message says why."""


class ProducerRecord(NamedTuple):
    """A record to send. Without ``timestamp_ms``, librdkafka sets the current time."""

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
    """A consumed record: a librdkafka message or an object with the same interface."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...


class JsonRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as ``partage consume --json`` prints it.

    ``timestamp`` is in ms since the epoch, ``timestamp_type`` is CreateTime or LogAppendTime. Both
    are null for records without a timestamp.
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

    ``key`` and ``value`` may be any JSON. A string is sent as its text, null as null, another value
    as its JSON. ``headers`` is an object, or a list as in ``consume --json``. ``timestamp`` is at
    least 1, because librdkafka takes 0 for the current time. ``topic``, ``offset`` and
    ``timestamp_type`` are ignored.
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
    """Return the record as one line of JSON, without a line end."""
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
    """Return the record of a line of JSON; None for a blank line.

    Raises:
        RecordParseError: The line is not JSON, or not a record.
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
    """Return the headers of a record, in order, with values as bytes."""
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
