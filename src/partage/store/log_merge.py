"""Merging of record batches: one value for each key, and what open transactions still need.

The result has the same effect as the batches, also when older batches are replayed before it. With
transactions, the order of its parts matters:

1. The first marker of each producer ends a transaction that began in older batches, and the last
   one fences older epochs of the producer.
2. Tombstones drop values and pending offsets of older batches.
3. Pending offsets that a later offset supersedes come before the values.
4. The values.
5. The other pending offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from partage.coordinator.records import GroupTombstone, OffsetRecord
from partage.store.record_formats import decode_record
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    checksum,
    whole_batches,
)
from partage.wire.records.decoder import decode_pairs, scan
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.records.transaction_marker import decode_marker
from partage.wire.types import Buffer

_BATCH_BYTES: Final = 512 * 1024  # start a new batch above this size
#: A marker fences older epochs of its producer for this time, as on a leader's disk
#: (``producer.id.expiration.ms``).
_MARKERS_KEPT_MS: Final = 86_400_000


def has_transactions(blob: Buffer) -> bool:
    """True if a batch is transactional, or if the batches after one cannot be scanned."""
    scanned = scan(blob, verify_crc=False)
    return scanned.stop < len(blob) or any(
        attributes & TRANSACTIONAL for attributes in scanned.attributes
    )


def merge(blobs: Sequence[Buffer], *, keeps_removals: bool) -> list[bytes]:
    """Return batches with the last value of each key, and with the open transactions.

    Args:
        blobs: The record batches, oldest first.
        keeps_removals: True if older batches may hold keys and open transactions.

    Raises:
        MalformedError: A batch is damaged.
    """
    if any(map(has_transactions, blobs)):
        merger = _TransactionalMerger()
        for blob in blobs:
            merger.add(blob)
        return merger.batches(keeps_removals=keeps_removals)
    last = {key: value for key, value in decode_pairs(blobs) if key is not None}
    return _plain_batches(
        (key, value) for key, value in last.items() if keeps_removals or value is not None
    )


def _plain_batches(pairs: Iterable[tuple[bytes, bytes | None]]) -> list[bytes]:
    records = (SimpleRecord(key, value, timestamp_ms=0) for key, value in pairs)
    return list(_encode(records, NO_PRODUCER, -1))


def _encode(
    records: Iterable[SimpleRecord], producer_id: int, producer_epoch: int
) -> Iterator[bytes]:
    """Yield batches of a producer, or of none."""
    gathered: list[SimpleRecord] = []
    size = 0

    def batch() -> bytes:
        return encode_batch(
            gathered,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER,
        )

    for record in records:
        gathered.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if size >= _BATCH_BYTES:
            yield batch()
            gathered, size = [], 0
    if gathered:
        yield batch()


class _Marker(NamedTuple):
    at_ms: int
    batch: bytes


class _PendingOffset(msgspec.Struct):
    """An offset of an open transaction; ``position`` counts the records."""

    producer_epoch: int
    at_ms: int
    position: int
    value: bytes | None
    is_superseded: bool = False


class _TransactionalMerger:
    """Replays batches, as `partage.coordinator.pending_offsets` does for a shard."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes | None] = {}
        self._tombstones: dict[bytes, None] = {}
        self._pending: dict[int, dict[bytes, _PendingOffset]] = {}  # by producer and key
        self._first_markers: dict[int, _Marker] = {}
        self._last_markers: dict[int, _Marker] = {}
        self._position = 0
        self._last_ms = 0  # of the last batch with a time; a merge writes some without

    def add(self, blob: Buffer) -> None:
        """Replay record batches."""
        view = memoryview(blob)
        end = 0
        for at, header in whole_batches(view):
            end = at + header.size
            batch = view[at:end]
            if header.max_timestamp_ms > 0:
                self._last_ms = header.max_timestamp_ms
            if header.is_control:
                self._add_marker(header, batch)
                continue
            for key, value in decode_pairs(batch):
                if key is None:
                    continue
                self._position += 1
                if not header.is_transactional:
                    self._add_plain(key, value)
                elif isinstance(decode_record(key, value), OffsetRecord):
                    self._pending.setdefault(header.producer_id, {})[key] = _PendingOffset(
                        header.producer_epoch, header.max_timestamp_ms, self._position, value
                    )
        if end < len(view):
            raise MalformedError(f"the record batch at byte {end} is not complete")

    def _add_marker(self, header: BatchHeader, batch: memoryview) -> None:
        if header.crc != checksum(batch, 0, header.size):
            raise MalformedError("a control batch does not match its checksum")
        marker = decode_marker(header, batch)
        if marker is None:
            return
        producer_id = header.producer_id
        kept = _Marker(header.max_timestamp_ms, bytes(batch))
        self._first_markers.setdefault(producer_id, kept)
        self._last_markers.pop(producer_id, None)  # they stay in the order of the log
        self._last_markers[producer_id] = kept
        for key, ended in self._pending.pop(producer_id, {}).items():
            if marker.is_commit and not ended.is_superseded:
                self._values[key] = ended.value
                self._supersede(key, ended.position)

    def _add_plain(self, key: bytes, value: bytes | None) -> None:
        self._values[key] = value
        if value is not None:
            self._supersede(key, self._position)
            return
        self._tombstones[key] = None
        removed = decode_record(key, None)
        for producer_id, of_producer in list(self._pending.items()):
            of_producer.pop(key, None)
            if isinstance(removed, GroupTombstone):
                for other in [one for one in of_producer if _group_of(one) == removed.group_id]:
                    del of_producer[other]
            if not of_producer:
                del self._pending[producer_id]

    def _supersede(self, key: bytes, position: int) -> None:
        for of_producer in self._pending.values():
            pending = of_producer.get(key)
            if pending is not None and pending.position <= position:
                pending.is_superseded = True

    def batches(self, *, keeps_removals: bool) -> list[bytes]:
        """Return the merged batches."""
        values = [(key, value) for key, value in self._values.items() if value is not None]
        tombstones = [(key, None) for key in self._tombstones] if keeps_removals else []
        return [
            *self._markers(keeps_first=keeps_removals),
            *_plain_batches(tombstones),
            *self._pending_batches(is_superseded=True),
            *_plain_batches(values),
            *self._pending_batches(is_superseded=False),
        ]

    def _markers(self, *, keeps_first: bool) -> Iterator[bytes]:
        if keeps_first:
            yield from (marker.batch for marker in self._first_markers.values())
        # Not the largest time: one wrong clock of a former owner must not expire all markers of
        # the present one.
        expired_ms = self._last_ms - _MARKERS_KEPT_MS
        for producer_id, marker in self._last_markers.items():
            is_first = keeps_first and marker is self._first_markers[producer_id]
            if marker.at_ms > expired_ms and not is_first:
                yield marker.batch

    def _pending_batches(self, *, is_superseded: bool) -> Iterator[bytes]:
        """Yield the pending offsets in their order, which decides between two transactions."""
        pending = sorted(
            (one.position, producer_id, key, one)
            for producer_id, of_producer in self._pending.items()
            for key, one in of_producer.items()
            if one.is_superseded is is_superseded
        )
        for _, producer_id, key, one in pending:
            record = SimpleRecord(key, one.value, timestamp_ms=one.at_ms)
            yield from _encode([record], producer_id, one.producer_epoch)


def _group_of(key: bytes) -> str:
    """Return the group of the key of an offset."""
    removed = decode_record(key, None)
    assert not isinstance(removed, GroupTombstone)
    return "" if removed is None else removed.group_id
