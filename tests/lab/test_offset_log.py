"""The independent decoder of a group log with transactions."""

from __future__ import annotations

from partage.coordinator.records import (
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.lab.offset_log import OffsetLogModel, PendingOffset
from partage.store.record_formats import decode_record
from partage.store.shard_log import encode_records


def offset(value: int, partition: int = 0) -> OffsetRecord:
    return OffsetRecord(group_id="g", topic="t", partition=partition, offset=value, commit_ms=1)


def pending(value: int, producer_id: int = 1, partition: int = 0) -> TransactionalOffsetRecord:
    return TransactionalOffsetRecord(
        producer_id=producer_id, producer_epoch=0, offset=offset(value, partition)
    )


def marker(producer_id: int = 1, *, commit: bool = True) -> TransactionMarker:
    return TransactionMarker(
        producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, is_commit=commit
    )


def committed(*records: Record) -> dict[int, int]:
    """Return the committed offset of each partition after these records."""
    state = dict(pair for pair, _ in OffsetLogModel().apply(encode_records(records, at_ms=1)))
    found = [decode_record(key, value) for key, value in state.items() if value is not None]
    return {each.partition: each.offset for each in found if isinstance(each, OffsetRecord)}


def test_pending_offset_counts_after_commit_only() -> None:
    assert committed(pending(5)) == {}
    assert committed(pending(5), marker(commit=False)) == {}
    assert committed(pending(5), marker()) == {0: 5}


def test_marker_ends_its_producer_only() -> None:
    records = (pending(5), pending(6, producer_id=2, partition=1), marker())
    assert committed(*records) == {0: 5}


def test_later_commit_supersedes_pending_offset() -> None:
    assert committed(pending(5), offset(4), marker()) == {0: 4}
    assert committed(pending(5), pending(6, 2), marker(2), marker(1)) == {0: 6}


def test_deleted_offset_is_no_longer_pending() -> None:
    removed = OffsetTombstone(group_id="g", topic="t", partition=0)
    assert committed(pending(5), removed, marker()) == {}


def test_last_offset_of_transaction_counts() -> None:
    assert committed(pending(5), pending(6), marker()) == {0: 6}


def test_change_names_the_pending_offset() -> None:
    changes = [change for _, change in OffsetLogModel().apply(encode_records([pending(5)], 1))]
    assert changes == [
        PendingOffset(group_id="g", producer_id=1, producer_epoch=0, offset=offset(5))
    ]
