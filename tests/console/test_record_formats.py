"""Parsing and formatting of records, lines and start positions, without a broker."""

from __future__ import annotations

import json
import os
from io import BytesIO
from typing import cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.output import count, format_bytes
from partage.console.records.escapes import unescape
from partage.console.records.input_lines import read_lines
from partage.console.records.line_parser import line_parser
from partage.console.records.record_json import from_json, to_json
from partage.console.records.start_positions import parse_start_position

CONTENT = st.none() | st.binary(max_size=20)


@settings(max_examples=50)
@given(
    key=CONTENT,
    value=CONTENT,
    headers=st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3),
    timestamp=st.integers(1, 2**63 - 1),
    partition=st.integers(0, 2**31 - 1),
)
def test_record_json_round_trip(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
    partition: int,
) -> None:
    message = Message(
        topic="t",
        partition=partition,
        offset=3,
        key=key,
        value=value,
        headers=headers,
        timestamp=(TIMESTAMP_CREATE_TIME, timestamp),
    )
    line = to_json(message)
    assert b"\n" not in line
    read = from_json(line)
    assert read is not None
    assert (read.key, read.value, read.partition) == (key, value, partition)
    assert read.timestamp_ms == timestamp
    assert list(read.headers) == headers
    assert json.loads(line)["offset"] == 3


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=8).filter(lambda text: b"\n" not in text)), st.data())
def test_read_lines_joins_chunks(texts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(text + b"\n" for text in texts)
    expected = [text.removesuffix(b"\r") for text in texts]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    class Chunked(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            while chunks:
                if chunk := chunks.pop(0):
                    return chunk
            return b""

    assert list(read_lines(Chunked())) == expected


def test_read_lines_yields_none_without_input() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as pipe:
        found = read_lines(stream)
        assert next(found) is None
        pipe.write(b"half")
        assert next(found) is None
        pipe.write(b" a line\nlast")
        assert next(found) == b"half a line"
        pipe.close()
        assert [line for line in found if line is not None] == [b"last"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"\t", b"\t"),
        (r"\n\r", b"\n\r"),
        (r"\x41\x7", b"A\x07"),
        (r"\101", b"A"),
        (r"\\n", rb"\n"),
        (r"\q", b"q"),
        ("\\", b"\\"),
        ("é", "é".encode()),
    ],
)
def test_unescape(text: str, meant: bytes) -> None:
    assert unescape(text) == meant


@pytest.mark.parametrize(
    "properties",
    [
        {"parse.headers": "true", "headers.separator": ":"},
        {"parse.headers": "true", "headers.delimiter": ","},
        {"parse.headers": "true", "headers.separator": ""},
    ],
)
def test_equal_or_empty_separators_are_rejected(properties: dict[str, str]) -> None:
    with pytest.raises(Exception, match="must"):
        line_parser(None, False, properties)


def test_first_separator_ends_key() -> None:
    record = line_parser("::", False, {}).parse(b"key::va::lue")
    assert (record.key, record.value) == (b"key", b"va::lue")


@pytest.mark.parametrize("text", ["-1", "0", "17", "beginning", "end", "earliest", "latest"])
def test_start_position_valid_texts(text: str) -> None:
    assert parse_start_position(text) is not None


@pytest.mark.parametrize("text", ["", "-", "--1", "1.5", "+1", "begin", "-end", "１"])
def test_start_position_invalid_texts(text: str) -> None:
    with pytest.raises(Exception, match="invalid --offset"):
        parse_start_position(text)


def test_count_and_format_bytes() -> None:
    assert [count(n, "record") for n in (0, 1, 1234)] == ["0 records", "1 record", "1,234 records"]
    sizes = [format_bytes(n) for n in (0, 1, 999, 1000, 999_949, 1_500_000, 2_000_000_000_000)]
    assert sizes == ["0 bytes", "1 byte", "999 bytes", "1.0 kB", "999.9 kB", "1.5 MB", "2000.0 GB"]


def test_message_without_timestamp_has_null() -> None:
    record = json.loads(to_json(cast("Message", Message(topic="t", value=b"v"))))
    assert (record["timestamp"], record["timestamp_type"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused "
            "(after 0ms in state CONNECT, 3 identical error(s) suppressed)",
            "Connection refused",
        ),
        (
            "x:1/bootstrap: Failed to resolve 'x:1': Name or service not known "
            "(after 7ms in state CONNECT)",
            "Name or service not known",
        ),
        ("Disconnected", "Disconnected"),
    ],
)
def test_unreachable_error_has_short_cause(text: str, cause: str) -> None:
    cluster = ClusterClient("x:1", {}, 500, verbose=False)
    cluster.recent_errors.append(KafkaError(KafkaError._TRANSPORT, text))
    assert f"within 500 ms ({cause}); check" in cluster.unreachable_error().message
