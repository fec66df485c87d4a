"""The producer id after EndTxn changes only with exhausted epochs of newer clients (KIP-890)."""

from __future__ import annotations

import pytest

from partage.model.topic_partition import TopicPartition
from partage.transactions.events import VERSION_0, VERSION_2, EndTransaction
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import ProducerReply
from partage.transactions.states import TransactionState
from partage.transactions.transaction import EPOCH_MAX, LAST_CLIENT_EPOCH

from .harness import Harness

PRODUCER_ID, FRESH_ID = 7, 42
ADDED = TopicPartition("t", 0)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    ("version", "epoch", "marker_epoch", "next_id", "next_epoch"),
    [
        (VERSION_0, 0, 0, PRODUCER_ID, 0),
        (
            VERSION_0,
            LAST_CLIENT_EPOCH - 1,
            LAST_CLIENT_EPOCH - 1,
            PRODUCER_ID,
            LAST_CLIENT_EPOCH - 1,
        ),
        (VERSION_0, LAST_CLIENT_EPOCH, LAST_CLIENT_EPOCH, PRODUCER_ID, LAST_CLIENT_EPOCH),
        (VERSION_2, 0, 1, PRODUCER_ID, 1),
        (VERSION_2, LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH, PRODUCER_ID, LAST_CLIENT_EPOCH),
        (VERSION_2, LAST_CLIENT_EPOCH, EPOCH_MAX, FRESH_ID, 0),
    ],
)
def test_producer_id_after_the_end_of_a_transaction(
    version: int, epoch: int, marker_epoch: int, next_id: int, next_epoch: int, is_commit: bool
) -> None:
    harness = Harness()
    harness.log.append(
        TransactionRecord(
            transactional_id="x",
            producer_id=PRODUCER_ID,
            epoch=epoch,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            partitions=(ADDED,),
            updated_ms=1,
            started_ms=1,
        )
    )
    harness.crash()
    harness.handle(
        EndTransaction(
            at_ms=harness.now_ms,
            reply_to=object(),
            transactional_id="x",
            producer_id=PRODUCER_ID,
            epoch=epoch,
            is_commit=is_commit,
            version=version,
            fresh_producer_id=FRESH_ID,
        )
    )
    ((_, reply),) = harness.replies
    assert reply == ProducerReply(producer_id=next_id, epoch=next_epoch)
    (order,) = harness.orders
    assert (order.producer_id, order.epoch) == (PRODUCER_ID, marker_epoch)
    harness.report(order, [ADDED])
    record = harness.shard.transactions["x"].record
    assert record.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert (record.producer_id, record.epoch) == (next_id, next_epoch)
