"""Conversion of a shard's records to record batches of ``__consumer_offsets``, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.record_formats import decode_record, encode_record
from partage.wire.codec import decoder
from partage.wire.consumer_protocol import Subscription
from partage.wire.primitives import MalformedError
from partage.wire.records.decoder import decode_pairs
from partage.wire.records.encoder import SimpleRecord as StoredRecord
from partage.wire.records.encoder import encode_batch
from partage.wire.types import Buffer

TOPIC: Final = "__consumer_offsets"
#: Small segments are compacted early, but one record can hold a large group.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": str(100 * 1024 * 1024),
    "compression.type": "producer",
}
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

    Args:
        records: The records.
        at_ms: Their timestamp.
        batch_bytes: A batch ends when it reaches this size; one large record may exceed it.
    """
    batches: list[bytes] = []
    gathered: list[StoredRecord] = []
    size = 0
    for record in records:
        key, value = encode_record(record)
        gathered.append(StoredRecord(key, value, timestamp_ms=at_ms))
        size += len(key) + len(value or b"")
        if size >= batch_bytes:
            batches.append(encode_batch(gathered))
            gathered, size = [], 0
    if gathered:
        batches.append(encode_batch(gathered))
    return batches


def replay(blobs: Sequence[Buffer], settings: GroupSettings) -> Shard:
    """Return the shard whose log consists of these record batches.

    Only the last value of each key is decoded. A record holds the full state of its key, so the
    order of the keys does not matter.

    Raises:
        Malformed: A batch, or a record in it, is damaged.
    """
    last = {key: value for key, value in decode_pairs(blobs) if key is not None}
    shard = Shard(settings, subscribed_topics)
    for key, value in last.items():
        if value is None:
            continue
        record = decode_record(key, value)
        if record is not None:
            shard.apply(record)
    return shard


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
