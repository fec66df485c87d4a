"""A batch ends between two events: a crash keeps all records of an event or none."""

from __future__ import annotations

from partage.store.batch_assembly import BatchSplitter
from partage.store.shard_log import encode_records
from partage.store.transaction_log import encode_transactions
from partage.transactions.records import TransactionTombstone

from .group_conversions import NOW_MS, Conversion, conversions, state_of, states


def assert_no_mixture(conversion: Conversion, batches: list[bytes]) -> None:
    """Check that each prefix of the batches holds the old group or the new one."""
    old, new = states(conversion)
    assert old != new
    earlier = encode_records(conversion.earlier, NOW_MS)
    found = [state_of(earlier + batches[:count]) for count in range(len(batches) + 1)]
    changed = found.index(new)
    assert changed > 0
    assert found == [old] * changed + [new] * (len(found) - changed)


def test_large_conversion_is_stored_in_one_batch() -> None:
    """The conversions of several hundred members exceed the size that ends a batch."""
    for conversion in conversions(300, 4_000):
        batches = encode_records(conversion.records, NOW_MS, event_ends=conversion.event_ends)
        assert len(batches) == 2
        assert len(batches[0]) > 1_000_000
        assert_no_mixture(conversion, batches)


def test_conversion_that_follows_other_records_is_never_torn() -> None:
    """A batch may reach its size at each record of the turn."""
    for conversion in conversions(3, 10):
        whole = sum(map(len, encode_records(conversion.records, NOW_MS)))
        counts = set()
        for batch_bytes in range(1, whole, 40):
            batches = encode_records(conversion.records, NOW_MS, batch_bytes, conversion.event_ends)
            counts.add(len(batches))
            assert_no_mixture(conversion, batches)
        assert counts == {1, 2, 3}


def test_records_of_a_transaction_event_are_in_one_batch() -> None:
    records = [TransactionTombstone(transactional_id=name) for name in "abcde"]
    assert len(encode_transactions(records, NOW_MS, 1, event_ends=[2, 5])) == 2
    assert len(encode_transactions(records, NOW_MS, 1)) == 5


def test_event_that_exceeds_the_log_limit_is_split() -> None:
    splitter = BatchSplitter(batch_bytes=1, event_bytes_max=300)
    records = [(bytes([n]) * 50, bytes(50)) for n in range(5)]
    batches = [
        batch
        for n, record in enumerate(records)
        for batch in splitter.add(*record, ends_event=n == 4)
    ]
    assert batches == [records[:2], records[2:4], records[4:]]
    assert splitter.finish() == []
