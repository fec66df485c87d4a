"""Conversion of a shard's records to record batches of ``__transaction_state``, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from partage.model.settings import TransactionSettings
from partage.store.transaction_formats import decode_transaction, encode_transaction
from partage.transactions.records import TransactionLogRecord
from partage.transactions.shard import TransactionShard
from partage.wire.records.decoder import decode_pairs
from partage.wire.records.encoder import SimpleRecord as StoredRecord
from partage.wire.records.encoder import encode_batch
from partage.wire.types import Buffer

TOPIC: Final = "__transaction_state"
#: One record holds all partitions of a transaction, which a request can fill.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": str(100 * 1024 * 1024),
    "compression.type": "uncompressed",
}
_RECORDS_PER_BATCH: Final = 512


def encode_transactions(records: Iterable[TransactionLogRecord], at_ms: int) -> list[bytes]:
    """Encode records as batches to append to the shard's log, in order.

    Args:
        records: The records.
        at_ms: Their timestamp.
    """
    stored = [
        StoredRecord(key, value, timestamp_ms=at_ms)
        for key, value in map(encode_transaction, records)
    ]
    return [
        encode_batch(stored[begin : begin + _RECORDS_PER_BATCH])
        for begin in range(0, len(stored), _RECORDS_PER_BATCH)
    ]


def replay_transactions(blobs: Sequence[Buffer], settings: TransactionSettings) -> TransactionShard:
    """Return the shard whose log consists of these record batches.

    Only the last value of each key is decoded: a record holds the full state of its key.

    Raises:
        MalformedError: A batch, or a record in it, is damaged.
    """
    last = {key: value for key, value in decode_pairs(blobs) if key is not None}
    shard = TransactionShard(settings)
    for key, value in last.items():
        record = None if value is None else decode_transaction(key, value)
        if record is not None:
            shard.apply(record)
    return shard
