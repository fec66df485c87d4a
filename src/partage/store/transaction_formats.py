"""A shard's records in Kafka's binary format for ``__transaction_state``.

A key begins with its version, 0. A value begins with its version: 1, the first one with tagged
fields, which Kafka writes from ``transaction.version`` 1 on. Version 0 is read, too. A key without
a value is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Final

from partage.model.topic_partition import TopicPartition
from partage.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionLogRecord,
    TransactionRecord,
    TransactionTombstone,
)
from partage.transactions.states import TransactionState
from partage.wire.codec import decoder
from partage.wire.primitives import MalformedError, encode_uvarint
from partage.wire.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    String,
    Tagged,
)

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
#: Tag of our own field, far above Kafka's tags, which count up from 0.
LAST_EPOCH_TAG: Final = 10_002

_INT16 = struct.Struct(">h")
#: Kafka's numbers of the states. It stores neither Dead (6) nor PrepareEpochFence (7).
_STATE_NUMBERS: Final = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
_STATES: Final = {number: state for state, number in _STATE_NUMBERS.items()}


class TransactionLogKey(Message):
    """Kafka's TransactionLogKey."""

    transactional_id: String


class TransactionLogPartitions(Message):
    """The partitions of one topic in `TransactionLogValue`."""

    topic: String
    partition_ids: Array[Int32]


class TransactionLogValue(Message):
    """Kafka's TransactionLogValue, v0 and v1; ``last_epoch`` is a tagged field of Partage."""

    producer_id: Int64
    previous_producer_id: Annotated[Int64, Tagged(0, since=1)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, Tagged(1, since=1)] = NO_PRODUCER_ID
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: NullableArray[TransactionLogPartitions] = None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, Tagged(2, since=1)] = 0
    next_producer_epoch: Annotated[Int16, Tagged(3, since=1)] = NO_EPOCH
    last_epoch: Annotated[Int16, Tagged(LAST_EPOCH_TAG, since=1)] = NO_EPOCH


_KEY_START = struct.Struct(">hh")  # version, size of the transactional id
#: Version, producer id and epoch, timeout, status.
_VALUE_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
# A tagged field: tag, size, content.
_TAGGED_INT64 = struct.Struct(">BBq")
_TAGGED_INT16 = struct.Struct(">BBh")
_TAGGED_LAST_EPOCH = struct.Struct(">2sBh")
_LAST_EPOCH_TAG_BYTES = encode_uvarint(LAST_EPOCH_TAG)
_NULL_ARRAY = _NO_TAGS = b"\0"


# The records are packed here and not by the codec, because a client waits for each of them.


def encode_transaction(record: TransactionLogRecord) -> tuple[bytes, bytes | None]:
    """Encode a record.

    Returns:
        Key and value; the value of a tombstone is None.
    """
    name = record.transactional_id.encode()
    key = _KEY_START.pack(KEY_VERSION, len(name)) + name
    return key, _encode_value(record) if isinstance(record, TransactionRecord) else None


def _encode_value(record: TransactionRecord) -> bytes:
    start = _VALUE_START.pack(
        VALUE_VERSION,
        record.producer_id,
        record.epoch,
        record.timeout_ms,
        _STATE_NUMBERS[record.state],
    )
    # null as in Kafka
    is_empty = record.state is TransactionState.EMPTY
    partitions = _NULL_ARRAY if is_empty else _encode_partitions(record.partitions)
    times = _TIMES.pack(record.updated_ms, record.started_ms)
    return start + partitions + times + _encode_tags(record)


def _encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [encode_uvarint(len(topics) + 1)]
    for topic, indexes in topics.items():
        name, count = topic.encode(), len(indexes)
        parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(count + 1))
        parts += (struct.pack(f">{count}i", *indexes), _NO_TAGS)
    return b"".join(parts)


def _encode_tags(record: TransactionRecord) -> bytes:
    """Return the tagged fields that do not have their defaults, in the order of their tags."""
    tags = []
    if record.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_INT64.pack(0, 8, record.previous_producer_id))
    if record.next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_INT64.pack(1, 8, record.next_producer_id))
    if record.version:
        tags.append(_TAGGED_INT16.pack(2, 2, record.version))
    if record.last_epoch != NO_EPOCH:
        tags.append(_TAGGED_LAST_EPOCH.pack(_LAST_EPOCH_TAG_BYTES, 2, record.last_epoch))
    return bytes((len(tags),)) + b"".join(tags)


def decode_transaction(key: bytes, value: bytes | None) -> TransactionLogRecord | None:
    """Decode a record.

    Returns:
        The record; None for a key of a later version.

    Raises:
        MalformedError: The bytes do not match their version.
    """
    if _version(key) != KEY_VERSION:
        return None
    transactional_id = decoder(TransactionLogKey, 0, False)(key, 2)[0].transactional_id
    if value is None:
        return TransactionTombstone(transactional_id=transactional_id)
    version = _version(value)
    if not 0 <= version <= VALUE_VERSION:
        raise MalformedError(f"transaction has version {version}; supported: 0 to {VALUE_VERSION}")
    held: TransactionLogValue = decoder(TransactionLogValue, version, version >= 1)(value, 2)[0]
    state = _STATES.get(held.transaction_status)
    if state is None:
        raise MalformedError(f"transaction has status {held.transaction_status}; supported: 0 to 5")
    return TransactionRecord(
        transactional_id=transactional_id,
        producer_id=held.producer_id,
        previous_producer_id=held.previous_producer_id,
        next_producer_id=held.next_producer_id,
        epoch=held.producer_epoch,
        last_epoch=held.last_epoch,
        timeout_ms=held.transaction_timeout_ms,
        state=state,
        partitions=tuple(
            TopicPartition(one.topic, partition)
            for one in held.transaction_partitions or ()
            for partition in one.partition_ids
        ),
        updated_ms=held.transaction_last_update_timestamp_ms,
        started_ms=held.transaction_start_timestamp_ms,
        version=held.client_transaction_version,
    )


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedError(f"a version has 2 bytes, found {len(data)}")
    version: int = _INT16.unpack_from(data)[0]
    return version
