"""The producers of a group shard in a shared store: their markers fence them, as in Kafka."""

from __future__ import annotations

import pytest

from partage.coordinator.records import (
    OffsetRecord,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.model.errors import ErrorCode
from partage.runtime.shard_producers import ShardProducers
from partage.store.shard_log import encode_records

NOW_MS = 1_000
OFFSET = OffsetRecord(group_id="g", topic="t", partition=0, offset=5, commit_ms=NOW_MS)


def pending(producer_id: int = 1, epoch: int = 3) -> TransactionalOffsetRecord:
    return TransactionalOffsetRecord(producer_id=producer_id, producer_epoch=epoch, offset=OFFSET)


def marker(producer_id: int = 1, epoch: int = 3, coordinator_epoch: int = 8) -> TransactionMarker:
    return TransactionMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=True,
    )


def batches(*records: Record) -> list[bytes]:
    return [batch for each in records for batch in encode_records([each], NOW_MS)]


def refusal(producers: ShardProducers, epoch: int, coordinator_epoch: int) -> ErrorCode | None:
    """Return the error of another marker of producer 1, from before transaction version 2."""
    refused = producers.state.check_marker(1, epoch, coordinator_epoch, 0)
    return None if refused is None else refused.code


@pytest.fixture(params=["applied", "one by one", "loaded"])
def producers(request: pytest.FixtureRequest) -> ShardProducers:
    """The producers after a transaction of 1 and the start of one of 2."""
    content = batches(OFFSET, pending(), pending(2), marker(), OFFSET)
    found = ShardProducers()
    match request.param:
        case "applied":
            found.apply(content)
        case "one by one":
            for each in content:
                found.apply([each])
        case "loaded":
            found.apply(batches(pending(9), marker(9)))
            found.load(content)
    return found


def test_transactional_producers_are_known(producers: ShardProducers) -> None:
    known = {each.producer_id: each for each in producers.state.summaries()}
    assert known.keys() == {1, 2}, "other batches have no producer, and a load forgets the rest"
    assert (known[1].epoch, known[1].coordinator_epoch, known[1].seen_ms) == (3, 8, NOW_MS)
    assert producers.state.has_open_transaction(2, 3)
    assert not producers.state.has_open_transaction(1, 3)


def test_marker_fences_older_epochs(producers: ShardProducers) -> None:
    assert refusal(producers, 2, 8) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, 3, 7) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(producers, 3, 8) is None


def test_transaction_is_unstable_until_its_marker(producers: ShardProducers) -> None:
    assert producers.state.first_unstable_offset is not None
    producers.apply(batches(marker(2)))
    assert producers.state.first_unstable_offset is None
    producers.apply(batches(pending()))
    assert producers.state.has_open_transaction(1, 3)
    assert producers.state.first_unstable_offset is not None


def test_expired_producers_are_forgotten(producers: ShardProducers) -> None:
    producers.state.remove_expired(NOW_MS + 86_400_000)
    assert [each.producer_id for each in producers.state.summaries()] == [2], (
        "2 is in a transaction"
    )
