"""The records of a shard's log. `TransactionShard.apply` is their only reader, both live and while
loading.

A record holds the full state of a transactional id. ``store.transaction_formats`` converts it to
Kafka's format.
"""

from __future__ import annotations

from typing import Final

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.transactions.states import TransactionState

#: Stands for a missing producer id or epoch, as in Kafka.
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1


class TransactionRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of a transactional id.

    ``previous_producer_id`` and ``last_epoch`` are those before the last change: a producer that
    repeats a request sends them. ``next_producer_id`` is used after the transaction, if the epochs
    are exhausted. ``version`` is the transaction version of the last request, 0 or 2 (KIP-890).
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    epoch: int
    last_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    updated_ms: int
    started_ms: int = -1  # of the last transaction; -1 if there was none since InitProducerId
    version: int = 0


class TransactionTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of a transactional id that expired."""

    transactional_id: str


TransactionLogRecord = TransactionRecord | TransactionTombstone
