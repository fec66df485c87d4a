"""An independent decoder of a group log with transactions: the state that each prefix of it means.

It shares no code with the coordinator. Each change is a pair of key and value, so that the checkers
need no separate rules for transactions:

- A pending offset is a pair whose key also has the producer.
- A marker removes the producer's pending offsets. After a commit it also stores them, except for
  offsets that were committed or deleted at a later position of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from partage.coordinator.records import (
    GroupTombstone,
    KeyedRecord,
    OffsetRecord,
    OffsetTombstone,
)
from partage.store.record_formats import decode_record
from partage.wire.records.batch import BatchHeader, whole_batches
from partage.wire.records.decoder import decode_pairs
from partage.wire.types import Buffer

Pair = tuple[bytes, bytes | None]

_HEADER_SIZE: Final = 61
_COMMIT: Final = 1


class PendingOffset(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An offset that a producer's open transaction has committed; None if it is not pending."""

    group_id: str
    producer_id: int
    producer_epoch: int
    offset: OffsetRecord | None


#: A change of a group log, as the checkers see it.
LogChange = KeyedRecord | PendingOffset


class OffsetLogModel:
    """The state of a group log after the batches so far."""

    def __init__(self) -> None:
        self._position = 0
        self._stored_at: dict[bytes, int] = {}  # position of each key's last change
        # producer -> key -> position, value and epoch
        self._pending: dict[int, dict[bytes, tuple[int, bytes, int]]] = {}

    def apply(self, blobs: Iterable[Buffer]) -> Iterator[tuple[Pair, LogChange | None]]:
        """Apply batches; yield each change, with None for a record that cannot be decoded."""
        for blob in blobs:
            view = memoryview(blob)
            for at, header in whole_batches(view):
                batch = view[at : at + header.size]
                if header.is_control:
                    yield from self._end(header, is_commit=marker_type(batch) == _COMMIT)
                    continue
                for key, value in decode_pairs(batch):
                    if key is None:
                        continue
                    self._position += 1
                    if header.is_transactional:
                        yield from self._add(header, key, value or b"")
                    else:
                        yield from self._store(key, value)

    def _add(
        self, header: BatchHeader, key: bytes, value: bytes
    ) -> Iterator[tuple[Pair, LogChange | None]]:
        of_producer = self._pending.setdefault(header.producer_id, {})
        of_producer[key] = self._position, value, header.producer_epoch
        record = decode_record(key, value)
        change = None
        if isinstance(record, OffsetRecord):
            change = PendingOffset(
                group_id=record.group_id,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                offset=record,
            )
        yield (_pending_key(header.producer_id, key), value), change

    def _store(self, key: bytes, value: bytes | None) -> Iterator[tuple[Pair, LogChange | None]]:
        self._stored_at[key] = self._position
        record = decode_record(key, value)
        yield (key, value), record
        if isinstance(record, OffsetTombstone | GroupTombstone):
            yield from self._drop(record)

    def _drop(
        self, removed: OffsetTombstone | GroupTombstone
    ) -> Iterator[tuple[Pair, LogChange | None]]:
        """Drop the pending offsets of a removed offset or group."""
        for producer_id, of_producer in self._pending.items():
            for key, (_, value, epoch) in list(of_producer.items()):
                pending = decode_record(key, value)
                assert isinstance(pending, OffsetRecord)
                if isinstance(removed, GroupTombstone):
                    is_removed = pending.group_id == removed.group_id
                else:
                    place = pending.group_id, pending.topic, pending.partition
                    is_removed = place == (removed.group_id, removed.topic, removed.partition)
                if is_removed:
                    del of_producer[key]
                    yield _no_longer_pending(pending.group_id, producer_id, epoch, key)

    def _end(
        self, header: BatchHeader, *, is_commit: bool
    ) -> Iterator[tuple[Pair, LogChange | None]]:
        self._position += 1
        for key, (position, value, epoch) in self._pending.pop(header.producer_id, {}).items():
            record = decode_record(key, value)
            assert isinstance(record, OffsetRecord)
            yield _no_longer_pending(record.group_id, header.producer_id, epoch, key)
            if is_commit and position > self._stored_at.get(key, 0):
                self._stored_at[key] = position
                yield (key, value), record


def _pending_key(producer_id: int, key: bytes) -> bytes:
    return b"pending %d " % producer_id + key


def _no_longer_pending(
    group_id: str, producer_id: int, epoch: int, key: bytes
) -> tuple[Pair, LogChange]:
    change = PendingOffset(
        group_id=group_id, producer_id=producer_id, producer_epoch=epoch, offset=None
    )
    return (_pending_key(producer_id, key), None), change


def marker_type(batch: Buffer) -> int:
    """Return the type in the key of a control batch: 0 aborts, 1 commits (KIP-98)."""
    at = _marker_key(batch)
    return int.from_bytes(bytes(batch[at + 2 : at + 4]), "big")


def marker_coordinator_epoch(batch: Buffer) -> int:
    """Return the epoch of the transaction coordinator in the value of a control batch."""
    at = _skip_varint(batch, _marker_key(batch) + 4)  # length of the value
    return int.from_bytes(bytes(batch[at + 2 : at + 6]), "big", signed=True)


def marker_age_ms(batch: Buffer) -> int:
    """Return the time of the record in a control batch, after the base timestamp of the batch."""
    at = _skip_varint(batch, _HEADER_SIZE) + 1  # length, attributes
    end = _skip_varint(batch, at)
    value = sum((byte & 0x7F) << 7 * position for position, byte in enumerate(batch[at:end]))
    return (value >> 1) ^ -(value & 1)


def _marker_key(batch: Buffer) -> int:
    at = _HEADER_SIZE
    at = _skip_varint(batch, at) + 1  # length, attributes
    at = _skip_varint(batch, at)  # timestamp delta
    at = _skip_varint(batch, at)  # offset delta
    return _skip_varint(batch, at)  # length of the key


def _skip_varint(content: Buffer, at: int) -> int:
    while content[at] & 0x80:
        at += 1
    return at + 1
