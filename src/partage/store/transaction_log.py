"""Conversion of a shard's records to record batches of ``__transaction_state``, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from partage.model.settings import TransactionSettings
from partage.store.batch_assembly import BatchSplitter, mark_event_ends
from partage.store.transaction_formats import decode_transaction, encode_transaction
from partage.transactions.records import TransactionLogRecord
from partage.transactions.shard import TransactionShard
from partage.wire.records.decoder import decode_pairs
from partage.wire.records.encoder import encode_pairs
from partage.wire.types import Buffer

TOPIC: Final = "__transaction_state"
#: One record holds all partitions of a transaction, which a request can fill.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "max.message.bytes": str(100 * 1024 * 1024),
    "compression.type": "uncompressed",
}
_BATCH_BYTES: Final = 512 * 1024  # start a new batch above this size, after an event


def encode_transactions(
    records: Iterable[TransactionLogRecord],
    at_ms: int,
    batch_bytes: int = _BATCH_BYTES,
    event_ends: Sequence[int] | None = None,
) -> list[bytes]:
    """Encode records as batches to append to the shard's log, in order.

    The records of an event are in one batch, so that a crash keeps all of them or none.

    Args:
        records: The records.
        at_ms: Their timestamp.
        batch_bytes: A batch ends with the event that reaches this size.
        event_ends: The number of records up to the end of each event; None if each record is an
            event.
    """
    if isinstance(records, list) and len(records) == 1:  # a step of the only producer
        return [encode_pairs([encode_transaction(records[0])], at_ms)]
    contents = []
    splitter = BatchSplitter(batch_bytes)
    for record, ends_event in mark_event_ends(records, event_ends):
        contents += splitter.add(*encode_transaction(record), ends_event=ends_event)
    contents += splitter.finish()
    return [encode_pairs(content, at_ms) for content in contents]


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
