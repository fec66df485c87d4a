"""The codec, with message declarations for tests."""

from __future__ import annotations

import struct
from typing import Annotated, Any

import pytest
from msgspec import field

from partage.wire import codec
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.primitives import decode_uvarint, decode_varint, encode_uvarint, encode_varint
from partage.wire.types import (
    Array,
    Buffer,
    Int8,
    Int32,
    Message,
    NullableArray,
    NullableString,
    RecordBytes,
    Since,
    Tagged,
    UInt16,
    Until,
)


class Inner(Message):
    number: Int32 = 0
    note: Annotated[NullableString, Tagged(3, since=1)] = None


class Outer(Message):
    old: Annotated[Int8, Until(0)] = 9
    new: Annotated[NullableArray[UInt16], Since(1)] = None
    maybe: Inner | None = None
    records: RecordBytes = None
    inner: Annotated[Inner, Tagged(0, since=1)] = field(default_factory=Inner)
    many: Annotated[Array[Inner], Tagged(200, since=1)] = []


class Tail(Message):
    inner: Annotated[Inner | None, Tagged(0, since=0)] = field(default_factory=Inner)


class Lacking(Message):
    added: Annotated[Int32, Since(1)]


class Bare(Message):
    number: int


def encoded(message: Message, version: int, *, flexible: bool) -> bytes:
    return b"".join(codec.encoder(type(message), version, flexible)(message))


def decoded(cls: type[Message], version: int, frame: bytes, *, flexible: bool) -> Any:
    message, end = codec.decoder(cls, version, flexible)(frame, 0)
    assert end == len(frame)
    return message


def test_fields_depend_on_version() -> None:
    message = Outer(old=1, new=[1, 65535], maybe=Inner(number=2), records=[b"ab", b"c"])
    classic = b"\x01" + b"\x01" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x03abc"
    assert encoded(message, 0, flexible=False) == classic
    assert decoded(Outer, 0, classic, flexible=False) == Outer(
        old=1, new=None, maybe=Inner(number=2), records=[b"abc"]
    )
    compact = b"\x03\x00\x01\xff\xff" + b"\x01" + b"\x00\x00\x00\x02\x00" + b"\x04abc" + b"\x00"
    assert encoded(message, 1, flexible=True) == compact
    assert decoded(Outer, 1, compact, flexible=True) == Outer(
        old=9, new=[1, 65535], maybe=Inner(number=2), records=[b"abc"]
    )


def test_null_values() -> None:
    assert encoded(Outer(), 0, flexible=False) == b"\x09" + b"\xff" + b"\xff\xff\xff\xff"
    assert encoded(Outer(), 1, flexible=True) == b"\x00" + b"\xff" + b"\x00" + b"\x00"
    assert decoded(Outer, 1, b"\x00\xff\x00\x00", flexible=True) == Outer()


def test_nested_tagged_fields() -> None:
    message = Outer(inner=Inner(number=1, note="x"), many=[Inner(note="y"), Inner(number=5)])
    x = b"\x00\x00\x00\x01" + b"\x01\x03\x02\x02x"
    y = b"\x00\x00\x00\x00" + b"\x01\x03\x02\x02y" + b"\x00\x00\x00\x05\x00"
    frame = b"\x00\xff\x00" + b"\x02" + b"\x00\x09" + x + b"\xc8\x01\x0f\x03" + y
    assert encoded(message, 1, flexible=True) == frame
    assert decoded(Outer, 1, frame, flexible=True) == message


@pytest.mark.parametrize(
    ("inner", "body"),
    [(None, "01 00 01 00"), (Inner(), "00"), (Inner(number=7), "01 00 06 01 00000007 00")],
)
def test_null_of_a_tagged_structure_is_one_zero_byte(inner: Inner | None, body: str) -> None:
    """A structure that is not tagged begins with the byte -1 if it is null."""
    frame = encoded(Tail(inner=inner), 1, flexible=True)
    assert frame == bytes.fromhex(body)
    assert decoded(Tail, 1, frame, flexible=True) == Tail(inner=inner)


def test_messages_do_not_share_mutable_defaults() -> None:
    for frame in (b"\x00\xff\x00\x00", b"\x00\xff\x00" + b"\x01\xc8\x01\x01\x01"):
        first = decoded(Outer, 1, frame, flexible=True)
        second = decoded(Outer, 1, frame, flexible=True)
        first.inner.number = 7
        first.many.append(Inner())
        assert second == Outer()
    assert encoded(second, 1, flexible=True) == b"\x00\xff\x00\x00"


def test_optional_field_without_default_is_refused() -> None:
    assert encoded(Lacking(added=1), 1, flexible=False) == b"\x00\x00\x00\x01"
    with pytest.raises(TypeError, match=r"Lacking\.added: no default for version 0"):
        codec.encoder(Lacking, 0, False)


def test_field_without_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Bare\.number: no kind"):
        codec.decoder(Bare, 0, False)


def test_value_out_of_range_raises_caller_error() -> None:
    with pytest.raises(struct.error):
        encoded(Inner(number=2**31), 0, flexible=False)


def test_record_bytes_are_not_copied() -> None:
    batches: list[Buffer] = [bytearray(b"first"), memoryview(b"second")]
    topic = ProduceTopic(name="t", partition_data=[ProducePartition(index=0, records=batches)])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    parts = PRODUCE.encode_request(9, request)
    assert any(part is batches[0] for part in parts)
    assert any(part is batches[1] for part in parts)

    frame = b"".join(parts)
    (view,) = PRODUCE.decode_request(9, frame).topic_data[0].partition_data[0].records or ()
    assert isinstance(view, memoryview)
    assert view.obj is frame
    assert bytes(view) == b"firstsecond"


def test_generated_source_is_available() -> None:
    assert "def decode(buf, pos):" in codec.decoder_source(HEARTBEAT.request, 4, True)
    assert "def encode(msg):" in codec.encoder_source(HEARTBEAT.request, 4, True)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_unsigned_varints(value: int, raw: bytes) -> None:
    assert encode_uvarint(value) == raw
    assert decode_uvarint(b"?" + raw + b"?", 1) == (value, 1 + len(raw))


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\x01"),
        (-(2**63), b"\xff" * 9 + b"\x01"),
    ],
)
def test_signed_varints(value: int, raw: bytes) -> None:
    assert encode_varint(value) == raw
    assert decode_varint(raw, 0) == (value, len(raw))
