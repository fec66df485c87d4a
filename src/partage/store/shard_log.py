"""A shard in a partition of ``__consumer_offsets``: records to batches, batches to a shard."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.formats import decode_record, encode_record
from partage.wire.codec import decoder
from partage.wire.consumer_protocol import Subscription
from partage.wire.primitives import Malformed
from partage.wire.records.decode import decode_pairs
from partage.wire.records.encode import Record as StoredRecord
from partage.wire.records.encode import encode_batch
from partage.wire.types import Buffer

TOPIC: Final = "__consumer_offsets"
#: Small segments compact early, and a large group is one record.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": str(100 * 1024 * 1024),
    "compression.type": "producer",
}
_BATCH_BYTES: Final = 512 * 1024  # begin another batch beyond this, as far as records allow
_decode_topics = decoder(Subscription, 0, False)


def shard_of(group_id: str, shard_count: int) -> int:
    """The shard that a group belongs to, as Kafka places it: Java's string hash, modulo."""
    utf16 = group_id.encode("utf-16-be")
    code = 0
    for unit in struct.unpack(f">{len(utf16) // 2}H", utf16):
        code = (31 * code + unit) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >> 31 else code
    magnitude = 0 if signed == -(1 << 31) else abs(signed)  # Java has no such absolute value
    return magnitude % shard_count


def encode_records(
    records: Iterable[Record], at_ms: int, batch_bytes: int = _BATCH_BYTES
) -> list[bytes]:
    """The records as batches, in order; a shard's log appends them as they are.

    A batch ends when it has reached ``batch_bytes``, which one large record may exceed.
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
    """The shard whose log consists of these record batches.

    Only the last value of each key counts, so the others are not decoded; and as these say what is,
    each of something else, their order does not matter.

    Raises:
        Malformed: a batch, or a record in it, is not what it claims to be.
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
    """Batches with the last value of each key in these; its removal only where something older,
    that is not among them, may hold it.

    Raises:
        Malformed: a batch is not what it claims to be.
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
    """The topics in a consumer's subscription; None if it is not one.

    Read as version 0, which all others begin with, whatever version it says: there are clients
    that say 1 and leave out what came with it. Kafka's coordinator reads it so too.
    """
    try:
        return frozenset(_decode_topics(metadata, 2)[0].topics)
    except Malformed:
        return None
