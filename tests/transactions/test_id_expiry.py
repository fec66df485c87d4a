"""The expiry check of a shard with many transactional ids."""

from __future__ import annotations

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.transactions.events import AddPartitions, InitProducer, TransactionTimerFired
from partage.transactions.records import TransactionRecord, TransactionTombstone
from partage.transactions.shard import EXPIRY_IDS_PER_EVENT, TransactionShard
from partage.transactions.states import TransactionState
from partage.transactions.timers import IdExpiryTimer

SETTINGS = TransactionSettings()
IDS = [f"id-{number}" for number in range(2 * EXPIRY_IDS_PER_EVENT + 1)]
EXPIRED_MS = SETTINGS.id_expiration_ms


def shard_with_ids() -> TransactionShard:
    shard = TransactionShard(SETTINGS)
    for number, transactional_id in enumerate(IDS):
        shard.apply(
            TransactionRecord(
                transactional_id=transactional_id,
                producer_id=number,
                epoch=0,
                timeout_ms=60_000,
                updated_ms=0,
            )
        )
    shard.resume(0)
    return shard


def fire_expiry(shard: TransactionShard, at_ms: int) -> tuple[list[str], int | None]:
    """Return the removed ids, and the delay of the next check."""
    outcome = shard.handle(TransactionTimerFired(at_ms=at_ms, key=IdExpiryTimer()))
    removed = [one.transactional_id for one in outcome.records]
    assert all(isinstance(one, TransactionTombstone) for one in outcome.records)
    deadlines = [at for key, at in outcome.timers if isinstance(key, IdExpiryTimer)]
    assert len(deadlines) <= 1
    return removed, None if not deadlines or deadlines[0] is None else deadlines[0] - at_ms


def test_expiry_of_many_ids_takes_several_events() -> None:
    shard = shard_with_ids()
    first, delay_ms = fire_expiry(shard, EXPIRED_MS)
    assert first == IDS[:EXPIRY_IDS_PER_EVENT]
    assert delay_ms == 1
    second, delay_ms = fire_expiry(shard, EXPIRED_MS + 1)
    assert second == IDS[EXPIRY_IDS_PER_EVENT:-1]
    assert delay_ms == 1
    last, delay_ms = fire_expiry(shard, EXPIRED_MS + 2)
    assert last == IDS[-1:]
    assert delay_ms is None  # no id is left
    assert not shard.transactions


def test_check_that_is_complete_waits_for_the_interval() -> None:
    shard = shard_with_ids()
    delays = [fire_expiry(shard, at_ms)[1] for at_ms in range(3)]
    assert delays == [1, 1, SETTINGS.expiry_check_interval_ms]
    assert list(shard.transactions) == IDS


def test_id_used_during_the_check_is_kept() -> None:
    shard = shard_with_ids()
    fire_expiry(shard, EXPIRED_MS)
    shard.handle(
        InitProducer(
            at_ms=EXPIRED_MS,
            reply_to=object(),
            transactional_id=IDS[-1],
            timeout_ms=60_000,
            producer_id=-1,
            epoch=-1,
            fresh_producer_id=10_000,
        )
    )
    opened = IDS[-2]
    shard.handle(
        AddPartitions(
            at_ms=EXPIRED_MS,
            reply_to=object(),
            transactional_id=opened,
            producer_id=shard.transactions[opened].record.producer_id,
            epoch=0,
            partitions=(TopicPartition("t", 0),),
        )
    )
    assert shard.transactions[opened].record.state is TransactionState.ONGOING
    fire_expiry(shard, EXPIRED_MS + 1)
    fire_expiry(shard, EXPIRED_MS + 2)
    assert list(shard.transactions) == [opened, IDS[-1]]


def test_id_removed_during_the_check_is_skipped() -> None:
    shard = shard_with_ids()
    fire_expiry(shard, EXPIRED_MS)
    shard.apply(TransactionTombstone(transactional_id=IDS[-1]))
    fire_expiry(shard, EXPIRED_MS + 1)
    removed, _ = fire_expiry(shard, EXPIRED_MS + 2)
    assert removed == []
