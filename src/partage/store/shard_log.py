"""Conversion of a shard's records to record batches of ``__consumer_offsets``, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from partage.coordinator.records import (
    OffsetRecord,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.batch_assembly import (
    RECORD_OVERHEAD_BYTES,
    BatchContent,
    BatchSplitter,
    mark_event_ends,
)
from partage.store.embedded_protocol import KafkaEmbeddedProtocol
from partage.store.log_merge import has_transactions
from partage.store.record_formats import decode_record, encode_offset, encode_record
from partage.wire.codec import decoder
from partage.wire.consumer_protocol import Subscription
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    NO_PRODUCER,
    BatchHeader,
    checksum,
    whole_batches,
)
from partage.wire.records.decoder import decode_pairs
from partage.wire.records.encoder import encode_pairs
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
#: Shards of ids that `find_shard` remembers, and the length of the longest one in characters.
_REMEMBERED_IDS_MAX: Final = 1 << 16
_REMEMBERED_LENGTH_MAX: Final = 256
_BATCH_BYTES: Final = 512 * 1024  # start a new batch above this size, after an event


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


_remembered_shard_of = lru_cache(_REMEMBERED_IDS_MAX)(shard_of)


def find_shard(group_id: str, shard_count: int) -> int:
    """Return the result of `shard_of`, in less time if the id was in a recent request.

    The shards of long ids are not remembered: clients may send any number of them.
    """
    if len(group_id) > _REMEMBERED_LENGTH_MAX:
        return shard_of(group_id, shard_count)
    return _remembered_shard_of(group_id, shard_count)


class EncodedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record outside a transaction, with its key and value in Kafka's formats."""

    key: bytes
    value: bytes | None


def encode_ahead(record: Record) -> Record | EncodedRecord:
    """Encode a record before its batch; a record of a transaction is returned unchanged."""
    if isinstance(record, TransactionalOffsetRecord | TransactionMarker):
        return record
    return EncodedRecord(*encode_record(record))


def encode_records(
    records: Iterable[Record | EncodedRecord],
    at_ms: int,
    batch_bytes: int = _BATCH_BYTES,
    event_ends: Sequence[int] | None = None,
) -> list[bytes]:
    """Encode records as batches to append to the shard's log, in order.

    The records of an event are in one batch, so that a crash keeps all of them or none. The offsets
    of a transaction are in transactional batches of its producer, and its marker is a control
    batch, as in Kafka.

    Args:
        records: The records.
        at_ms: Their timestamp.
        batch_bytes: A batch ends with the event that reaches this size.
        event_ends: The number of records up to the end of each event; None if each record is an
            event.
    """
    if isinstance(records, list) and (batch := _encode_offsets(records, at_ms, batch_bytes)):
        return [batch]
    batches: list[bytes] = []
    splitter = BatchSplitter(batch_bytes)
    producer = _NO_TRANSACTION  # of the gathered records
    for record, ends_event in mark_event_ends(records, event_ends):
        if (found := _producer_of(record)) != producer:
            batches += _encode_contents(splitter.finish(), producer, at_ms)
            producer = found
        if isinstance(record, OffsetRecord):  # first, because it is the most frequent type
            key, value = encode_record(record)
        elif isinstance(record, TransactionMarker):
            batches += _encode_contents(splitter.finish(), producer, at_ms)
            batches.append(_encode_marker(record, at_ms))
            continue
        elif isinstance(record, EncodedRecord):
            key, value = record.key, record.value
        elif isinstance(record, TransactionalOffsetRecord):
            key, value = encode_record(record.offset)
        else:
            key, value = encode_record(record)
        if ended := splitter.add(key, value, ends_event=ends_event):
            batches += _encode_contents(ended, producer, at_ms)
    batches += _encode_contents(splitter.finish(), producer, at_ms)
    return batches


def _encode_offsets(
    records: list[Record | EncodedRecord], at_ms: int, batch_bytes: int
) -> bytes | None:
    """Encode commits as one batch, without the code that decides where batches end.

    Returns:
        The batch; None if there are other records, or too many for one batch.
    """
    pairs = [encode_offset(record) for record in records if type(record) is OffsetRecord]
    if len(pairs) != len(records) or not pairs:
        return None
    batch = encode_pairs(pairs, at_ms)
    is_small = len(batch) + len(pairs) * RECORD_OVERHEAD_BYTES < batch_bytes
    return batch if is_small or len(pairs) == 1 else None


def _producer_of(record: Record | EncodedRecord) -> tuple[int, int]:
    """Return producer id and epoch of the batch for a record."""
    if isinstance(record, OffsetRecord) or not isinstance(
        record, (TransactionalOffsetRecord, TransactionMarker)
    ):
        return _NO_TRANSACTION
    return record.producer_id, record.producer_epoch


def _encode_contents(
    contents: Iterable[BatchContent], producer: tuple[int, int], at_ms: int
) -> list[bytes]:
    producer_id, producer_epoch = producer
    return [
        encode_pairs(
            content,
            at_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer != _NO_TRANSACTION,
        )
        for content in contents
    ]


def _encode_marker(record: TransactionMarker, at_ms: int) -> bytes:
    return encode_marker(
        record.producer_id,
        record.producer_epoch,
        record.coordinator_epoch,
        is_commit=record.is_commit,
        timestamp_ms=at_ms,
    )


def replay(blobs: Sequence[Buffer], settings: GroupSettings) -> Shard:
    """Return the shard whose log consists of these record batches.

    Without transactions only the last value of each key is decoded. A record holds the full state
    of its key, so the order of the keys does not matter. A log with transactions is applied record
    by record, because a marker ends the pending offsets before it. There, too, only the last value
    of a key that is not an offset counts: between two keys of a merged log, a partition may have
    two owners.

    Raises:
        MalformedError: A batch, or a record in it, is damaged.
    """
    shard = Shard(settings, subscribed_topics, KafkaEmbeddedProtocol())
    if any(has_transactions(blob) for blob in blobs):
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


def _records_in_order(blobs: Sequence[Buffer]) -> Iterator[Record]:
    last: dict[bytes, Record] = {}  # values of keys other than offsets
    for blob in blobs:
        view = memoryview(blob)
        for at, header in whole_batches(view):
            batch = view[at : at + header.size]
            if header.is_control:
                yield from _marker(header, batch)
                continue
            for key, value in decode_pairs(batch):
                record = None if key is None else decode_record(key, value)
                if key is None or record is None:
                    continue
                if not header.is_transactional:
                    if value is None:
                        last.pop(key, None)
                    elif not isinstance(record, OffsetRecord):
                        last[key] = record
                        continue
                    yield record
                elif isinstance(record, OffsetRecord):
                    yield TransactionalOffsetRecord(
                        producer_id=header.producer_id,
                        producer_epoch=header.producer_epoch,
                        offset=record,
                    )
    yield from last.values()


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


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's subscription; None if the metadata is no subscription.

    It is read as version 0, which is a prefix of all others, whatever version it states. Some
    clients state 1 and omit its fields. Kafka's coordinator reads it the same way.
    """
    try:
        return frozenset(decoder(Subscription, 0, False)(metadata, 2)[0].topics)
    except MalformedError:
        return None
