"""The invariants of a transaction find states that break them: other tests rely on them."""

from __future__ import annotations

import msgspec
import pytest

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.transactions.invariants import check_change, check_shard
from partage.transactions.records import TransactionRecord
from partage.transactions.shard import TransactionShard
from partage.transactions.states import TransactionState
from partage.transactions.transaction import EPOCH_MAX

_S = TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record_in(state: TransactionState, **changes: object) -> TransactionRecord:
    """Return the record of a transactional id in a state, perhaps with changes."""
    is_open = state in (_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT)
    record = TransactionRecord(
        transactional_id="id",
        producer_id=1,
        epoch=5,
        last_epoch=4,
        timeout_ms=60_000,
        state=state,
        partitions=(T0,) if is_open else (),
        updated_ms=10,
        started_ms=10,
    )
    return msgspec.structs.replace(record, **changes)


def shard_in(state: TransactionState, **changes: object) -> TransactionShard:
    shard = TransactionShard(TransactionSettings())
    shard.apply(record_in(state, **changes))
    return shard


@pytest.mark.parametrize("state", _S, ids=str)
def test_valid_state_is_accepted(state: TransactionState) -> None:
    check_shard(shard_in(state))


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        (_S.EMPTY, {"producer_id": -1}),
        (_S.EMPTY, {"epoch": -1}),
        (_S.EMPTY, {"epoch": EPOCH_MAX + 1}),
        (_S.EMPTY, {"last_epoch": -2}),
        (_S.EMPTY, {"last_epoch": EPOCH_MAX + 1}),
        (_S.EMPTY, {"partitions": (T0,)}),
        (_S.COMPLETE_COMMIT, {"partitions": (T0,)}),
        (_S.ONGOING, {"partitions": ()}),
        (_S.ONGOING, {"partitions": (T0, T0)}),
        (_S.ONGOING, {"started_ms": -1}),
        (_S.PREPARE_ABORT, {"started_ms": -1}),
        (_S.PREPARE_COMMIT, {"partitions": ()}),
        (_S.PREPARE_COMMIT, {"next_producer_id": 2}),
        (_S.EMPTY, {"next_producer_id": 2, "epoch": EPOCH_MAX}),
    ],
    ids=lambda each: ",".join(each) if isinstance(each, dict) else str(each),
)
def test_invalid_record_is_found(state: TransactionState, changes: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        check_shard(shard_in(state, **changes))


@pytest.mark.parametrize(
    "state", [_S.EMPTY, _S.ONGOING, _S.PREPARE_COMMIT, _S.COMPLETE_ABORT], ids=str
)
@pytest.mark.parametrize("part", ["partitions", "unmarked", "unknown", "index", "name", "stray"])
def test_invalid_index_is_found(state: TransactionState, part: str) -> None:
    shard = shard_in(state)
    transaction = shard.transactions["id"]
    match part:
        case "partitions":
            transaction.partitions ^= {T1}
        case "unmarked":
            transaction.unmarked = set() if transaction.unmarked else {T0}
        case "unknown":
            transaction.unmarked = {T1}
        case "index":
            shard.ongoing = {} if shard.ongoing else {"id": 0}
        case "name":
            shard.transactions["other"] = transaction
        case "stray":
            shard.ongoing["other"] = 0
    with pytest.raises(AssertionError):
        check_shard(shard)


ONGOING, PREPARED = record_in(_S.ONGOING), record_in(_S.PREPARE_COMMIT)
EXHAUSTED = record_in(_S.EMPTY, epoch=EPOCH_MAX - 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record_in(_S.EMPTY), ONGOING),
        (record_in(_S.EMPTY), record_in(_S.EMPTY, epoch=6)),
        (EXHAUSTED, record_in(_S.EMPTY, producer_id=2, epoch=0)),
        (ONGOING, record_in(_S.ONGOING, partitions=(T0, T1))),
        (ONGOING, PREPARED),
        (PREPARED, record_in(_S.COMPLETE_COMMIT)),
    ],
)
def test_valid_change_is_accepted(before: TransactionRecord, after: TransactionRecord) -> None:
    check_change(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record_in(_S.EMPTY), PREPARED),
        (PREPARED, record_in(_S.COMPLETE_ABORT)),
        (record_in(_S.EMPTY), record_in(_S.EMPTY, epoch=4)),
        (record_in(_S.EMPTY), record_in(_S.EMPTY, epoch=7)),
        (EXHAUSTED, record_in(_S.EMPTY, producer_id=2, epoch=1)),
        (record_in(_S.EMPTY, epoch=EPOCH_MAX - 2), record_in(_S.EMPTY, producer_id=2, epoch=0)),
        (ONGOING, record_in(_S.PREPARE_COMMIT, partitions=(T0, T1))),
        (ONGOING, ONGOING),
        (ONGOING, record_in(_S.ONGOING, partitions=(T1,))),
        (ONGOING, record_in(_S.ONGOING, partitions=(T0, T1), started_ms=11)),
    ],
)
def test_invalid_change_is_found(before: TransactionRecord, after: TransactionRecord) -> None:
    with pytest.raises(AssertionError):
        check_change(before, after)
