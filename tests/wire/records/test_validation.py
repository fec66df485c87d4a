"""Batches that a broker refuses to store."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest

from partage.wire.primitives import MalformedError, encode_varint
from partage.wire.records.batch import HEADER_SIZE, parse_header
from partage.wire.records.compression import compress
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.records.validation import CorruptBatchError, validate_batch

from .batch_factory import CODECS, raw_batch, raw_record, records


def validate(batch: bytes) -> None:
    buf = b"before" + batch + b"after"
    validate_batch(buf, 6, parse_header(buf, 6))


@pytest.mark.parametrize("codec", CODECS)
def test_valid_batch_is_accepted(codec: int) -> None:
    batch = encode_batch(
        records(Random(codec), 100),
        compression=codec,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    validate(batch)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"base_offset": 1}, "offset 0"),
        ({"record_count": 0}, "not 0"),
        ({"record_count": -1}, "not -1"),
        ({"last_offset_delta": 1}, "last offset delta of 1"),
        ({"record_count": 2, "last_offset_delta": 1}, "2"),
        ({"attributes": 0x20}, "control"),
        ({"attributes": 5}, "codec 5"),
        ({"attributes": 0x10}, "producer id"),
        ({"producer_id": 1, "producer_epoch": 0}, "sequence -1"),
        ({"producer_id": 1, "base_sequence": 0}, "epoch -1"),
    ],
)
def test_invalid_header_is_malformed(changed: dict[str, int], why: str) -> None:
    with pytest.raises(MalformedError, match=why) as refusal:
        validate(raw_batch(raw_record(), **changed))
    assert not isinstance(refusal.value, CorruptBatchError)


def test_damaged_batch_is_corrupt() -> None:
    batch = bytearray(encode_batch([SimpleRecord(b"k", b"v")]))
    header = parse_header(batch)
    with pytest.raises(CorruptBatchError, match="bytes"):
        validate_batch(batch[:-1], 0, header)
    with pytest.raises(CorruptBatchError, match="bytes"):
        validate_batch(batch, 1, header)
    with pytest.raises(CorruptBatchError, match="bytes"):
        validate_batch(batch, 0, header._replace(length=-12))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        validate_batch(batch, 0, header)


WRONG = {
    "empty": b"",
    "length too long": raw_record(length=encode_varint(7)),
    "length too short": raw_record(length=encode_varint(5)),
    "length negative": raw_record(length=encode_varint(-1)),
    "length zero": raw_record(length=encode_varint(0)),
    "length of 2^63-1": raw_record(length=encode_varint(2**63 - 1)),
    "length of 2^31-1": raw_record(length=encode_varint(2**31 - 1)),
    "length in six bytes": raw_record(length=b"\x8c\x80\x80\x80\x80\x00"),
    "key of 2^63-1": raw_record(key=encode_varint(2**63 - 1)),
    "key of 2^31-1": raw_record(key=encode_varint(2**31 - 1)),
    "key of -2": raw_record(key=encode_varint(-2)),
    "key one too long": raw_record(key=encode_varint(3)),
    "value of 2^63-1": raw_record(value=encode_varint(2**63 - 1)),
    "value of -2^31": raw_record(value=encode_varint(-(2**31))),
    "value one too long": raw_record(value=encode_varint(2)),
    "headers -1": raw_record(headers=encode_varint(-1)),
    "headers 2^31-1": raw_record(headers=encode_varint(2**31 - 1)),
    "headers missing": raw_record(headers=encode_varint(1)),
    "headers left over": raw_record(headers=b"\x00\x00"),
    "header key null": raw_record(headers=encode_varint(1) + b"\x01\x01"),
    "header key too long": raw_record(headers=encode_varint(1) + b"\x04a\x01"),
    "header value -2": raw_record(headers=encode_varint(1) + b"\x00\x03"),
    "header value too long": raw_record(headers=encode_varint(1) + b"\x00\x04a"),
    "no header count": raw_record(headers=b""),
    "offset 1": raw_record(delta=encode_varint(1)),
    "offset -1": raw_record(delta=encode_varint(-1)),
    "age of 65 bits": raw_record(age=b"\xff" * 9 + b"\x02"),
    "age of 11 bytes": raw_record(age=b"\x80" * 10 + b"\x00"),
    "cut": raw_record()[:-1],
    "followed by more": raw_record() + b"\x00",
    "two": raw_record() * 2,
}


@pytest.mark.parametrize("payload", WRONG.values(), ids=WRONG.keys())
def test_malformed_records_are_refused(decoder: ModuleType, payload: bytes) -> None:
    with pytest.raises(MalformedError):
        decoder.check_records(payload, 1)
    with pytest.raises(MalformedError):
        validate(raw_batch(payload))
    validate(raw_batch(compress(4, payload), attributes=4))


@pytest.mark.parametrize("payload", WRONG.values(), ids=WRONG.keys())
def test_malformed_records_are_not_decoded(decoder: ModuleType, payload: bytes) -> None:
    for batch in (raw_batch(payload), raw_batch(compress(3, payload), attributes=3)):
        with pytest.raises(MalformedError):
            decoder.decode_records(batch)
        with pytest.raises(MalformedError):
            decoder.decode_columns(
                batch, from_offset=0, to_offset=10, with_headers=True, verify_crc=True
            )


def test_widest_varints_are_accepted(decoder: ModuleType) -> None:
    """Longer than necessary but within their bits, as Java accepts them."""
    body = b"\x00" + b"\x80" * 9 + b"\x00" + b"\x80\x80\x80\x80\x00" + b"\x82\x80\x80\x80\x00k"
    body += b"\x81\x80\x80\x80\x00" + b"\x80\x00"
    payload = encode_varint(len(body)) + body
    decoder.check_records(payload, 1)
    assert decoder.decode_pairs(raw_batch(payload)) == [(b"k", None)]


def test_offset_deltas_out_of_order_are_refused(decoder: ModuleType) -> None:
    def payload(*deltas: int) -> bytes:
        return b"".join(raw_record(delta=encode_varint(delta)) for delta in deltas)

    decoder.check_records(payload(0, 1, 2), 3)
    for deltas in ((0, 2, 1), (0, 0, 1), (1, 2, 3), (0, 1, 3)):
        with pytest.raises(MalformedError):
            decoder.check_records(payload(*deltas), 3)


def test_impossible_record_count_is_refused(decoder: ModuleType) -> None:
    decoder.check_records(b"", 0)
    for count in (2, 2**31 - 1, -1, 0):
        with pytest.raises(MalformedError):
            decoder.check_records(raw_record(), count)


def test_decompression_bomb_is_not_decompressed() -> None:
    packed = compress(1, bytes(1 << 20))
    batch = raw_batch(packed, attributes=1)
    assert len(batch) < HEADER_SIZE + 2000
    validate(batch)


@pytest.mark.parametrize("codec", range(5))
def test_record_count_above_any_batch_is_refused(codec: int) -> None:
    """Compressed or not: each declared record would occupy an offset."""
    count = 2**31 - 1
    fields = {"record_count": count, "last_offset_delta": count - 1, "attributes": codec}
    batch = raw_batch(compress(codec, raw_record()), **fields)
    with pytest.raises(MalformedError, match=f"cannot hold {count} records"):
        validate(batch)
