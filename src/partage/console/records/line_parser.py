"""Parser of text lines into records, with the properties of Kafka's console producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from partage.console.common.errors import usage_error
from partage.console.records.escapes import unescape
from partage.console.records.record_json import Headers, ProducerRecord, RecordParseError

_KNOWN: Final = frozenset(
    {
        "parse.key",
        "key.separator",
        "parse.headers",
        "headers.delimiter",
        "headers.separator",
        "headers.key.separator",
        "ignore.error",
        "null.marker",
    }
)


class LineParser(NamedTuple):
    r"""Parser of lines ``headers TAB key TAB value``; headers and key are optional.

    ``null_marker`` is the text for null. ``empty_is_null`` makes empty keys and values null (kcat's
    -Z). With ``is_lenient``, a line with a missing separator becomes the value.
    """

    key_separator: bytes | None = None
    headers_delimiter: bytes | None = None
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    empty_is_null: bool = False
    is_lenient: bool = False

    def parse(self, line: bytes) -> ProducerRecord:
        """Return the record of a line, which is given without its end.

        Raises:
            RecordParseError: A separator is missing.
        """
        try:
            return self._read(line)
        except RecordParseError:
            if self.is_lenient:
                return ProducerRecord(self._null(line))
            raise

    def _read(self, line: bytes) -> ProducerRecord:
        headers: Headers = ()
        key: bytes | None = None
        if self.headers_delimiter is not None:
            text, line = _cut(line, self.headers_delimiter, "headers")
            headers = self._headers(text)
        if self.key_separator is not None:
            text, line = _cut(line, self.key_separator, "key")
            key = self._null(text)
        return ProducerRecord(self._null(line), key, headers)

    def _headers(self, text: bytes) -> Headers:
        if not text or text == self.null_marker:
            return ()
        headers: list[tuple[str, bytes | None]] = []
        for pair in text.split(self.headers_separator):
            name, value = _cut(pair, self.headers_key_separator, "header name")
            try:
                headers.append((name.decode(), None if value == self.null_marker else value))
            except UnicodeDecodeError as error:
                raise RecordParseError(f"header name {name!r} is not UTF-8") from error
        return headers

    def _null(self, text: bytes) -> bytes | None:
        if text == self.null_marker or (self.empty_is_null and not text):
            return None
        return text


def line_parser(
    key_separator: str | None, empty_is_null: bool, properties: Mapping[str, str]
) -> LineParser:
    """Return the parser for the options and the properties of Kafka's console producer.

    Args:
        key_separator: Separator between key and value; None without the option.
        empty_is_null: True if empty keys and values are null.
        properties: Values of ``--property``.

    Raises:
        CommandError: A property is unknown, or separators are empty or equal.
    """
    unknown = sorted(set(properties) - _KNOWN)
    if unknown:
        raise usage_error(
            f"unknown --property: {', '.join(unknown)}; known: {', '.join(sorted(_KNOWN))}"
        )
    separators = {
        name: unescape(properties.get(name, default))
        for name, default in (
            ("key.separator", "\\t"),
            ("headers.delimiter", "\\t"),
            ("headers.separator", ","),
            ("headers.key.separator", ":"),
        )
    }
    if key_separator is not None:
        separators["key.separator"] = unescape(key_separator)
    empty = [name for name, separator in separators.items() if not separator]
    if empty:
        raise usage_error(f"{' and '.join(empty)} must not be empty")
    in_headers = {name: each for name, each in separators.items() if name != "key.separator"}
    if _true(properties, "parse.headers") and len(set(in_headers.values())) < len(in_headers):
        raise usage_error(f"{', '.join(in_headers)} must differ from each other")
    with_key = key_separator is not None or _true(properties, "parse.key")
    marker = properties.get("null.marker")
    return LineParser(
        key_separator=separators["key.separator"] if with_key else None,
        headers_delimiter=(
            separators["headers.delimiter"] if _true(properties, "parse.headers") else None
        ),
        headers_separator=separators["headers.separator"],
        headers_key_separator=separators["headers.key.separator"],
        null_marker=None if marker is None else marker.encode(),
        empty_is_null=empty_is_null,
        is_lenient=_true(properties, "ignore.error"),
    )


def _true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "false").strip().lower() == "true"


def _cut(line: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
    before, found, after = line.partition(separator)
    if not found:
        raise RecordParseError(
            f"missing separator {separator.decode(errors='replace')!r} after its {what}"
        )
    return before, after
