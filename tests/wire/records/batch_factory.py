"""Records and batches for tests: random ones from a seed, and invalid ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

from crc32c import crc32c

from partage.wire.primitives import encode_varint
from partage.wire.records.batch import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from partage.wire.records.columns import RecordTuple
from partage.wire.records.encoder import SimpleRecord, encode_batch

CODECS = (0, 1, 2, 3, 4)
NOW_MS = 1_700_000_000_000
ABORT, COMMIT = 0, 1
#: Lengths around every size at which a varint grows, up to three bytes.
SIZES = (0, 1, 5, 63, 64, 127, 128, 300, 8191, 8192)
HEADER_KEYS = ("", "a", "trace", "größe", "\N{SNOWMAN}", "x" * 80)


def blob(rng: Random) -> bytes | None:
    if rng.random() < 0.2:
        return None
    size = rng.choice(SIZES[:-2]) if rng.random() < 0.98 else rng.choice(SIZES)
    return rng.randbytes(size // 2) + b"." * (size - size // 2)


def record(rng: Random, timestamp_ms: int, offset_delta: int | None = None) -> SimpleRecord:
    headers = ()
    if rng.random() < 0.3:
        headers = tuple((rng.choice(HEADER_KEYS), blob(rng)) for _ in range(rng.randrange(1, 4)))
    return SimpleRecord(blob(rng), blob(rng), headers, timestamp_ms, offset_delta)


def records(rng: Random, count: int) -> list[SimpleRecord]:
    """Return records in order; some timestamps go back."""
    made, timestamp_ms = [], NOW_MS
    for _ in range(count):
        made.append(record(rng, timestamp_ms))
        timestamp_ms += rng.choice((0, 1, 1, 60, 70, 9000, -3, 10**7))
    return made


def as_tuples(written: Sequence[SimpleRecord], base_offset: int = 0) -> list[RecordTuple]:
    """Return the tuples that decoding these records must give."""
    tuples, delta = [], -1
    for made in written:
        delta = delta + 1 if made.offset_delta is None else made.offset_delta
        headers = tuple(made.headers)
        tuples.append((base_offset + delta, made.timestamp_ms, made.key, made.value, headers))
    return tuples


def log(rng: Random, batches: int, *, codecs: Sequence[int] = CODECS, start: int = 0) -> bytes:
    """Return concatenated batches with few or many records."""
    out, offset = [], start
    for _ in range(batches):
        written = records(rng, rng.choice((1, 2, 3, 10, 40)))
        out.append(encode_batch(written, base_offset=offset, compression=rng.choice(codecs)))
        offset += len(written)
    return b"".join(out)


def marker(producer_id: int, kind: int, base_offset: int) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    end = SimpleRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), timestamp_ms=NOW_MS)
    return encode_batch(
        [end],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )


def raw_record(
    key: bytes = encode_varint(-1),
    value: bytes = encode_varint(-1),
    headers: bytes = encode_varint(0),
    *,
    age: bytes = encode_varint(0),
    delta: bytes = encode_varint(0),
    length: bytes | None = None,
) -> bytes:
    """Return a record made of its encoded fields, lengths included."""
    body = b"\x00" + age + delta + key + value + headers
    return (encode_varint(len(body)) if length is None else length) + body


def raw_batch(payload: bytes, *, seal: bool = True, **changed: Any) -> bytes:
    """Return a batch of one record with ``changed`` header fields and a valid checksum."""
    fields = {
        "base_offset": 0,
        "length": HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp_ms": NOW_MS,
        "max_timestamp_ms": NOW_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 1,
    }
    assert changed.keys() <= fields.keys()
    made = HEADER.pack(*(fields | changed).values()) + payload
    return sealed(made) if seal else made


def sealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with a valid checksum."""
    crc = crc32c(bytes(batch[CRC_FROM:]))
    return bytes(batch[:17]) + struct.pack(">I", crc) + bytes(batch[CRC_FROM:])


def sealed_log(blob: bytes | bytearray) -> bytes:
    """Return the batches with valid checksums, as far as their lengths can be followed."""
    out, pos = bytearray(blob), 0
    while len(out) - pos >= HEADER_SIZE:
        size = int.from_bytes(out[pos + 8 : pos + 12], "big", signed=True) + LENGTH_OVERHEAD
        if size < HEADER_SIZE or size > len(out) - pos:
            break
        out[pos : pos + size] = sealed(out[pos : pos + size])
        pos += size
    return bytes(out)
