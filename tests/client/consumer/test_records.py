"""Decoding of one response's records, and how long the result is cached."""

import weakref

import pytest

from partage.client import TopicPartition
from partage.client.consumer.records import COLUMNS, FetchedBatches
from partage.wire.records.encoder import SimpleRecord, encode_batch


@pytest.fixture
def stored():
    """Offsets 0 to 9 of t-0."""
    records = [SimpleRecord(None, b"%d" % n, (), 1000) for n in range(10)]
    blob = bytes(encode_batch(records))
    return FetchedBatches(TopicPartition("t", 0), blob, 10, None, [(9, 0)])


def address(batch):
    """Return the addresses of the values."""
    return batch.column("value").buffers()[2].address


def offsets(batch):
    return batch.column("offset").to_pylist()


def test_consecutive_ranges_share_decoded_data(stored):
    first = stored.arrow(0, 4, COLUMNS)
    second = stored.arrow(4, 7, COLUMNS)
    last = stored.arrow(7, 10, COLUMNS)
    assert [*offsets(first), *offsets(second), *offsets(last)] == list(range(10))
    assert address(first) == address(second) == address(last)


def test_last_range_is_not_cached(stored):
    batch = stored.arrow(0, 10, COLUMNS)
    kept = weakref.ref(batch)
    assert offsets(batch) == list(range(10))
    del batch
    assert kept() is None


def test_range_can_be_decoded_again(stored):
    for start, end in [(0, 10), (0, 10), (0, 3), (3, 10), (0, 3), (2, 5)]:
        assert offsets(stored.arrow(start, end, COLUMNS)) == list(range(start, end))
