"""Invariants of a shard, checked after every event in tests and simulations."""

from __future__ import annotations

from partage.transactions.records import NO_EPOCH, NO_PRODUCER_ID, TransactionRecord
from partage.transactions.shard import TransactionShard
from partage.transactions.states import PREDECESSORS, PREPARED, TransactionState
from partage.transactions.transaction import EPOCH_MAX, Transaction


def check_shard(shard: TransactionShard) -> None:
    """Raise AssertionError if the state of a shard is inconsistent."""
    for transactional_id, transaction in shard.transactions.items():
        assert transactional_id == transaction.record.transactional_id
        is_ongoing = transaction.record.state is TransactionState.ONGOING
        assert is_ongoing == (transactional_id in shard.ongoing), "the index of open transactions"
        _check_transaction(transaction)
    assert shard.ongoing.keys() <= shard.transactions.keys()


def _check_transaction(transaction: Transaction) -> None:
    record = transaction.record
    is_prepared = record.state in PREPARED
    is_open = is_prepared or record.state is TransactionState.ONGOING
    assert record.producer_id >= 0
    assert 0 <= record.epoch <= EPOCH_MAX
    assert NO_EPOCH <= record.last_epoch <= EPOCH_MAX
    assert transaction.partitions == set(record.partitions)
    assert len(transaction.partitions) == len(record.partitions), "a partition is listed twice"
    assert bool(record.partitions) == is_open, "partitions belong to an open transaction"
    assert transaction.unmarked <= transaction.partitions
    assert bool(transaction.unmarked) == is_prepared, "a decided transaction awaits its markers"
    if is_open:
        assert record.started_ms >= 0
    if record.next_producer_id != NO_PRODUCER_ID:
        assert is_prepared, "the next producer id is used after the transaction"
        assert record.epoch == EPOCH_MAX, "only exhausted epochs need another id"


def check_change(before: TransactionRecord, after: TransactionRecord) -> None:
    """Raise AssertionError if a record may not follow another one of its transactional id."""
    assert before.state in PREDECESSORS[after.state], f"{before.state} -> {after.state}"
    if before.producer_id == after.producer_id:
        assert after.epoch in (before.epoch, before.epoch + 1)
    else:
        assert after.epoch == 0, "a new producer id begins with epoch 0"
        assert before.epoch >= EPOCH_MAX - 1, "a producer id is replaced when it is exhausted"
    if after.state in PREPARED and before.state is TransactionState.ONGOING:
        assert after.partitions == before.partitions
    if after.state is TransactionState.ONGOING is before.state:
        assert set(before.partitions) < set(after.partitions)
        assert after.started_ms == before.started_ms
