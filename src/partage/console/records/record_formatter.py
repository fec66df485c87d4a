"""Formatters of consumed records: text lines, kcat formats, JSON."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from partage.console.common.errors import usage_error
from partage.console.records.escapes import unescape
from partage.console.records.record_json import ConsumedRecord, headers_of, to_json

RecordFormatter: TypeAlias = Callable[[ConsumedRecord], bytes]
"""A function that returns the bytes to print for a record."""

_TIMES: Final = {
    TIMESTAMP_CREATE_TIME: b"CreateTime:%d",
    TIMESTAMP_LOG_APPEND_TIME: b"LogAppendTime:%d",
}
_SWITCHES: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
_KNOWN: Final = frozenset(
    {f"print.{name}" for name in _SWITCHES}
    | {"key.separator", "line.separator", "headers.separator", "null.literal"}
)


def format_json_line(message: ConsumedRecord) -> bytes:
    """Return the record as a line of JSON, in the format of `record_json`."""
    return to_json(message) + b"\n"


class LineFormatter(NamedTuple):
    """Fields, separators and defaults of a line, as in Kafka's console consumer."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False
    value: bool = True
    separator: bytes = b"\t"
    end: bytes = b"\n"
    headers_separator: bytes = b","
    null: bytes = b"null"

    def format(self, message: ConsumedRecord) -> bytes:
        """Return the line of a record."""
        shown = []
        if self.timestamp:
            kind, at_ms = message.timestamp()
            shown.append(_TIMES[kind] % at_ms if kind in _TIMES else b"NO_TIMESTAMP")
        if self.partition:
            shown.append(b"Partition:%d" % (message.partition() or 0))
        if self.offset:
            shown.append(b"Offset:%d" % (message.offset() or 0))
        if self.headers:
            shown.append(
                _headers(message, b":", self.headers_separator, self.null) or b"NO_HEADERS"
            )
        if self.key:
            shown.append(_or(message.key(), self.null))
        if self.value:
            shown.append(_or(message.value(), self.null))
        return self.separator.join(shown) + self.end


def line_formatter(
    switched_on: Mapping[str, bool], separator: str | None, properties: Mapping[str, str]
) -> LineFormatter:
    """Return the formatter for the options and the properties of Kafka's console consumer.

    Args:
        switched_on: Fields to print, by name.
        separator: Separator after the key; None without the option.
        properties: Values of ``--property``.

    Raises:
        CommandError: A property is unknown.
    """
    unknown = sorted(set(properties) - _KNOWN)
    if unknown:
        raise usage_error(
            f"unknown --property: {', '.join(unknown)}; known: {', '.join(sorted(_KNOWN))}"
        )
    shown = {name: name == "value" for name in _SWITCHES}
    shown |= {
        name: properties[f"print.{name}"].strip().lower() == "true"
        for name in _SWITCHES
        if f"print.{name}" in properties
    }
    shown |= {name: True for name, on in switched_on.items() if on}
    if separator is not None:
        shown["key"] = True
    return LineFormatter(
        **shown,
        separator=unescape(
            properties.get("key.separator", "\\t") if separator is None else separator
        ),
        end=unescape(properties.get("line.separator", "\\n")),
        headers_separator=unescape(properties.get("headers.separator", ",")),
        null=properties.get("null.literal", "null").encode(),
    )


def kcat_formatter(format_string: str, null: bytes) -> RecordFormatter:
    r"""Return a formatter for a kcat format: ``%t %p %o %k %s %h %T %K %S %R %%``, ``\n``, etc.

    Args:
        format_string: The format.
        null: Bytes for a null key or value.

    Raises:
        CommandError: An unknown character follows a ``%``.
    """
    shown: list[RecordFormatter] = []
    for literal, token in re.findall(r"([^%]+)|%(.?)", format_string, re.DOTALL):
        if literal:
            shown.append(_constant(unescape(literal)))
        elif token == "%":
            shown.append(_constant(b"%"))
        elif token in _TOKENS:
            shown.append(_TOKENS[token](null))
        else:
            raise usage_error(f"unknown token %{token} in --format; see --help")
    return lambda message: b"".join([part(message) for part in shown])


def _constant(text: bytes) -> RecordFormatter:
    return lambda message: text


_TOKENS: Final[Mapping[str, Callable[[bytes], RecordFormatter]]] = {
    "t": lambda null: lambda message: (message.topic() or "").encode(),
    "p": lambda null: lambda message: b"%d" % (message.partition() or 0),
    "o": lambda null: lambda message: b"%d" % (message.offset() or 0),
    "k": lambda null: lambda message: _or(message.key(), null),
    "s": lambda null: lambda message: _or(message.value(), null),
    "h": lambda null: lambda message: _headers(message, b"=", b",", b"NULL"),
    "T": lambda null: lambda message: b"%d" % _timestamp(message),
    "K": lambda null: lambda message: b"%d" % _length(message.key()),
    "S": lambda null: lambda message: b"%d" % _length(message.value()),
    "R": lambda null: lambda message: struct.pack(">i", _length(message.value())),
}


def _headers(message: ConsumedRecord, equals: bytes, separator: bytes, null: bytes) -> bytes:
    return separator.join(
        name.encode() + equals + _or(value, null) for name, value in headers_of(message)
    )


def _timestamp(message: ConsumedRecord) -> int:
    kind, at_ms = message.timestamp()
    return at_ms if kind in _TIMES else -1


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _or(content: bytes | None, null: bytes) -> bytes:
    return null if content is None else content
