"""Encoder of record batches.

A coordinator writes its state as thousands of small batches a second. The loop over records is
therefore optimized for the interpreter: varints come from a table, and no function is called per
field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from partage.wire.primitives import SMALL_UVARINTS, encode_varint
from partage.wire.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Compression,
)
from partage.wire.records.checksum import crc32c
from partage.wire.records.compression import compress
from partage.wire.types import Buffer

_UP_TO_CRC: Final = struct.Struct(">qiibI")
_FROM_CRC: Final = struct.Struct(">hiqqqhii")
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20

_SMALL: Final = 1 << 13
_FIRST_BYTES: Final = [bytes((0x80 | low,)) for low in range(0, 0x80, 2)]
#: The varints of 0 to 8,191, which have up to two bytes, and that of -1 at the end:
#: ``_VARINTS[-1]``. Those of two bytes are joined, because 8,000 calls of `encode_varint` would add
#: some milliseconds to each import.
_VARINTS: Final = [
    *map(encode_varint, range(len(_FIRST_BYTES))),
    *(first + last for last in SMALL_UVARINTS[1:] for first in _FIRST_BYTES),
    encode_varint(-1),
]
_NULL: Final = _VARINTS[-1]
_PLAIN_START: Final = b"\x00\x00"  # no attributes, timestamp delta 0
_NO_HEADERS: Final = _VARINTS[0]


class SimpleRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to encode.

    ``offset_delta`` is its distance from the base offset; None means one more than the previous
    record's. The caller is responsible for the order.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset_delta: int | None = None


def encode_batch(
    records: Iterable[SimpleRecord],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_control: bool = False,
    is_transactional: bool = False,
    last_offset_delta: int | None = None,
    append_time_ms: int | None = None,
) -> bytes:
    """Encode one batch of records.

    Args:
        records: The records, in order of their offsets.
        base_offset: Offset of the batch.
        compression: A `Compression` codec.
        last_offset_delta: Keeps the offset range of a batch whose last records were compacted away.
            The batch may be empty only if it is given.
        append_time_ms: Timestamp of a batch with timestamp type LogAppendTime, ms since the epoch.

    Raises:
        ValueError: There are no records, or the codec is unknown.
        struct.error: A number does not fit its field.
    """
    parts: list[bytes] = []
    varints = _VARINTS
    count = 0
    delta = -1
    base_timestamp_ms = max_timestamp_ms = NO_TIMESTAMP
    for record in records:
        timestamp_ms = record.timestamp_ms
        if not count:
            base_timestamp_ms = max_timestamp_ms = timestamp_ms
        elif timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
        age = timestamp_ms - base_timestamp_ms
        offset_delta = record.offset_delta
        delta = delta + 1 if offset_delta is None else offset_delta
        key, value, headers = record.key, record.value, record.headers
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        body = b"".join(
            (
                b"\x00",  # attributes, which are unused
                varints[age] if 0 <= age < _SMALL else encode_varint(age),
                varints[delta] if 0 <= delta < _SMALL else encode_varint(delta),
                varints[key_size] if key_size < _SMALL else encode_varint(key_size),
                key or b"",
                varints[value_size] if value_size < _SMALL else encode_varint(value_size),
                value or b"",
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        size = len(body)
        parts += (varints[size] if size < _SMALL else encode_varint(size), body)
        count += 1
    attributes = compression
    if append_time_ms is not None:
        attributes |= _LOG_APPEND_TIME
        max_timestamp_ms = append_time_ms
    if is_transactional:
        attributes |= TRANSACTIONAL
    if is_control:
        attributes |= _CONTROL
    if last_offset_delta is None:
        if not count:
            raise ValueError("a batch without records needs a last offset delta")
        last_offset_delta = delta
    return _finish_batch(
        parts,
        compression,
        base_offset,
        leader_epoch,
        _FROM_CRC.pack(
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ),
    )


def encode_pairs(
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Encode one batch of keys and values that share a timestamp, in about half the time.

    Raises as `encode_batch`.
    """
    parts: list[bytes] = []
    varints = _VARINTS
    count = 0
    for key, value in pairs:
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        body = b"".join(
            (
                _PLAIN_START,
                varints[count] if count < _SMALL else encode_varint(count),
                varints[key_size] if key_size < _SMALL else encode_varint(key_size),
                key or b"",
                varints[value_size] if value_size < _SMALL else encode_varint(value_size),
                value or b"",
                _NO_HEADERS,
            )
        )
        size = len(body)
        parts += (varints[size] if size < _SMALL else encode_varint(size), body)
        count += 1
    if not count:
        raise ValueError("a batch needs at least one record")
    return _finish_batch(
        parts,
        compression,
        base_offset,
        leader_epoch,
        _FROM_CRC.pack(
            compression | TRANSACTIONAL if is_transactional else compression,
            count - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            -1,
            count,
        ),
    )


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def _finish_batch(
    parts: Sequence[Buffer], compression: int, base_offset: int, leader_epoch: int, header: bytes
) -> bytes:
    """Return the complete batch. ``header`` holds the fields that the checksum covers."""
    payload = b"".join(parts)
    if compression:
        payload = compress(compression, payload)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    crc = crc32c(payload, crc32c(header))
    return _UP_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + header + payload
