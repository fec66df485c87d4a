"""Conversion of a shard's records to record batches of ``__consumer_offsets``, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from partage.coordinator.records import (
    OffsetRecord,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.record_formats import decode_record, encode_record
from partage.wire.codec import decoder
from partage.wire.consumer_protocol import Subscription
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    checksum,
    whole_batches,
)
from partage.wire.records.decoder import decode_pairs, scan
from partage.wire.records.encoder import SimpleRecord as StoredRecord
from partage.wire.records.encoder import encode_batch
from partage.wire.records.transaction_marker import decode_marker, encode_marker
from partage.wire.types import Buffer

TOPIC: Final = "__consumer_offsets"
#: Small segments are compacted early, but one record can hold a large group.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": str(100 * 1024 * 1024),
    "compression.type": "producer",
}
_NO_TRANSACTION: Final = (NO_PRODUCER, -1)
_BATCH_BYTES: Final = 512 * 1024  # start a new batch above this size
_decode_topics = decoder(Subscription, 0, False)


def shard_of(group_id: str, shard_count: int) -> int:
    """Return the shard of a group, as in Kafka: Java's string hash modulo the number of shards."""
    utf16 = group_id.encode("utf-16-be")
    code = 0
    for unit in struct.unpack(f">{len(utf16) // 2}H", utf16):
        code = (31 * code + unit) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >> 31 else code
    # Kafka maps the minimum to 0, as it has no absolute value in Java
    magnitude = 0 if signed == -(1 << 31) else abs(signed)
    return magnitude % shard_count


def encode_records(
    records: Iterable[Record], at_ms: int, batch_bytes: int = _BATCH_BYTES
) -> list[bytes]:
    """Encode records as batches to append to the shard's log, in order.

    The offsets of a transaction are in transactional batches of its producer, and its marker is a
    control batch, as in Kafka.

    Args:
        records: The records.
        at_ms: Their timestamp.
        batch_bytes: A batch ends when it reaches this size; one large record may exceed it.
    """
    batches: list[bytes] = []
    for producer, run in groupby(records, _producer_of):
        batches += _encode_run(run, producer, at_ms, batch_bytes)
    return batches


def _producer_of(record: Record) -> tuple[int, int]:
    """Return producer id and epoch of the batch for a record."""
    if isinstance(record, TransactionalOffsetRecord | TransactionMarker):
        return record.producer_id, record.producer_epoch
    return _NO_TRANSACTION


def _encode_run(
    records: Iterable[Record], producer: tuple[int, int], at_ms: int, batch_bytes: int
) -> list[bytes]:
    batches: list[bytes] = []
    gathered: list[StoredRecord] = []
    size = 0

    def finish() -> None:
        nonlocal size
        if gathered:
            producer_id, epoch = producer
            batches.append(
                encode_batch(
                    gathered,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    is_transactional=producer != _NO_TRANSACTION,
                )
            )
            gathered.clear()
            size = 0

    for record in records:
        if isinstance(record, TransactionMarker):
            finish()
            batches.append(
                encode_marker(
                    *producer,
                    record.coordinator_epoch,
                    is_commit=record.is_commit,
                    timestamp_ms=at_ms,
                )
            )
            continue
        key, value = encode_record(
            record.offset if isinstance(record, TransactionalOffsetRecord) else record
        )
        gathered.append(StoredRecord(key, value, timestamp_ms=at_ms))
        size += len(key) + len(value or b"")
        if size >= batch_bytes:
            finish()
    finish()
    return batches


def replay(blobs: Sequence[Buffer], settings: GroupSettings) -> Shard:
    """Return the shard whose log consists of these record batches.

    Without transactions only the last value of each key is decoded. A record holds the full state
    of its key, so the order of the keys does not matter. A log with transactions is applied record
    by record, because a marker ends the pending offsets before it.

    Raises:
        Malformed: A batch, or a record in it, is damaged.
    """
    shard = Shard(settings, subscribed_topics)
    if any(_has_transactions(blob) for blob in blobs):
        for record in _records_in_order(blobs):
            shard.apply(record)
        return shard
    last = {key: value for key, value in decode_pairs(blobs) if key is not None}
    for key, value in last.items():
        if value is None:
            continue
        kept = decode_record(key, value)
        if kept is not None:
            shard.apply(kept)
    return shard


def _has_transactions(blob: Buffer) -> bool:
    """True if a batch is transactional, or if the batches after one cannot be scanned."""
    scanned = scan(blob, verify_crc=False)
    return scanned.stop < len(blob) or any(
        attributes & TRANSACTIONAL for attributes in scanned.attributes
    )


def _records_in_order(blobs: Sequence[Buffer]) -> Iterator[Record]:
    for blob in blobs:
        view = memoryview(blob)
        for at, header in whole_batches(view):
            batch = view[at : at + header.size]
            if header.is_control:
                yield from _marker(header, batch)
                continue
            for key, value in decode_pairs(batch):
                record = None if key is None else decode_record(key, value)
                if record is None:
                    continue
                if not header.is_transactional:
                    yield record
                elif isinstance(record, OffsetRecord):
                    yield TransactionalOffsetRecord(
                        producer_id=header.producer_id,
                        producer_epoch=header.producer_epoch,
                        offset=record,
                    )


def _marker(header: BatchHeader, batch: memoryview) -> Iterator[TransactionMarker]:
    if header.crc != checksum(batch, 0, header.size):
        raise MalformedError("a control batch does not match its checksum")
    marker = decode_marker(header, batch)
    if marker is not None:
        yield TransactionMarker(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            is_commit=marker.is_commit,
        )


def merge(blobs: Sequence[Buffer], *, keeps_removals: bool) -> list[bytes]:
    """Return batches with the last value of each key.

    Args:
        blobs: The record batches, oldest first.
        keeps_removals: True to keep tombstones, because older batches may hold the key.

    Raises:
        Malformed: A batch is damaged.
    """
    last = {key: value for key, value in decode_pairs(blobs) if key is not None}
    batches: list[bytes] = []
    gathered: list[StoredRecord] = []
    size = 0
    for key, value in last.items():
        if value is None and not keeps_removals:
            continue
        gathered.append(StoredRecord(key, value, timestamp_ms=0))
        size += len(key) + len(value or b"")
        if size >= _BATCH_BYTES:
            batches.append(encode_batch(gathered))
            gathered, size = [], 0
    if gathered:
        batches.append(encode_batch(gathered))
    return batches


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's subscription; None if the metadata is no subscription.

    It is read as version 0, which is a prefix of all others, whatever version it states. Some
    clients state 1 and omit its fields. Kafka's coordinator reads it the same way.
    """
    try:
        return frozenset(_decode_topics(metadata, 2)[0].topics)
    except MalformedError:
        return None
