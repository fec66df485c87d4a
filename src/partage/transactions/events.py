"""Events that a shard handles.

A request carries all input of a decision: the time, a fresh producer id, a ticket for the reply,
and the transaction version instead of API versions.
"""

from __future__ import annotations

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.statemachine.linear_pattern import LinearPattern
from partage.transactions.timers import TransactionTimerKey

#: The version of transactions before KIP-890, and with it.
VERSION_0 = 0
VERSION_2 = 2


class TransactionEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event at ``at_ms``, in ms since the epoch on a clock that never goes back."""

    at_ms: int


class TransactionTimerFired(TransactionEvent, frozen=True, gc=False, kw_only=True):
    """A timer reached its deadline."""

    key: TransactionTimerKey


class TransactionTimedOut(TransactionEvent, frozen=True, gc=False, kw_only=True):
    """The open transaction of an id is to be aborted, as if its timeout had passed."""

    transactional_id: str


class MarkersWritten(TransactionEvent, frozen=True, gc=False, kw_only=True):
    """Markers of a transaction are durable, or their partitions no longer exist."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class TransactionRequest(TransactionEvent, frozen=True, gc=True, kw_only=True):
    """A request; ``reply_to`` is opaque, and gets exactly one reply."""

    reply_to: object


class InitProducer(TransactionRequest, frozen=True, kw_only=True):
    """InitProducerId. A producer that recovers sends its id and epoch; both are -1 otherwise."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    epoch: int = -1
    fresh_producer_id: int


class AddPartitions(TransactionRequest, frozen=True, kw_only=True):
    """AddPartitionsToTxn, AddOffsetsToTxn, or the first write to a partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    version: int = VERSION_0


class VerifyPartitions(TransactionRequest, frozen=True, kw_only=True):
    """A leader checks that partitions belong to the transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(TransactionRequest, frozen=True, kw_only=True):
    """EndTxn. ``fresh_producer_id`` is needed only if the epoch is exhausted."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int = VERSION_0
    fresh_producer_id: int = -1


class DescribeTransaction(TransactionRequest, frozen=True, kw_only=True):
    """DescribeTransactions, for one transactional id."""

    transactional_id: str


class ListTransactions(TransactionRequest, frozen=True, kw_only=True):
    """ListTransactions, for one shard; an empty filter passes everything.

    ``duration_ms`` passes transactions that are open for longer; -1 passes everything. ``pattern``
    matches whole transactional ids. ``names`` are the ids to examine, None for all; of them, the
    shard examines the first ``count_max``, None for all.
    """

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    pattern: LinearPattern | None = None
    names: tuple[str, ...] | None = None
    count_max: int | None = None
