"""Control records that end a transaction (KIP-98).

A marker is a control batch with one record. Its key is a version and the type, its value a version
and the epoch of the transaction coordinator.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from partage.wire.primitives import MalformedError, decode_varint
from partage.wire.records.batch import HEADER_SIZE, BatchHeader
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.types import Buffer

_KEY: Final = struct.Struct(">hh")  # version, type
_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_ABORT: Final = 0
_COMMIT: Final = 1
_VERSION: Final = 0


class TransactionMarkerRecord(NamedTuple):
    """The content of a marker."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    is_commit: bool,
    timestamp_ms: int,
) -> bytes:
    """Encode the control batch that ends a producer's transaction.

    Args:
        producer_id: The producer of the transaction.
        producer_epoch: The epoch of the marker.
        coordinator_epoch: The epoch of the transaction coordinator.
        is_commit: True to commit, False to abort.
        timestamp_ms: The time of the marker, ms since the epoch.
    """
    key = _KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [SimpleRecord(key, value, timestamp_ms=timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_control=True,
        is_transactional=True,
    )


def decode_marker(header: BatchHeader, content: Buffer) -> TransactionMarkerRecord | None:
    """Decode a control batch.

    Args:
        header: The header of the batch.
        content: All bytes of the batch.

    Returns:
        The marker; None for a control batch of another type.

    Raises:
        MalformedError: The record is cut off.
    """
    if not header.is_control or not header.record_count:
        return None
    view = memoryview(content)[HEADER_SIZE : header.size]
    at = 0
    _, at = decode_varint(view, at)  # length of the record
    at += 1  # attributes
    _, at = decode_varint(view, at)  # timestamp delta
    _, at = decode_varint(view, at)  # offset delta
    key_size, at = decode_varint(view, at)
    if key_size < _KEY.size or at + key_size > len(view):
        raise MalformedError("a control record has no complete key")
    _, kind = _KEY.unpack_from(view, at)
    if kind not in (_ABORT, _COMMIT):
        return None
    at += key_size
    value_size, at = decode_varint(view, at)
    if value_size < _VALUE.size or at + value_size > len(view):
        raise MalformedError("a transaction marker has no complete value")
    _, coordinator_epoch = _VALUE.unpack_from(view, at)
    return TransactionMarkerRecord(kind == _COMMIT, coordinator_epoch)
