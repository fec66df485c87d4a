"""Retention in a running broker; ``tests/log`` tests which records are removed."""

from __future__ import annotations

import pytest

from partage.wire.records.encoder import SimpleRecord, encode_batch
from polled_conditions import eventually

from .requests import NOW_MS, batch, create, fetch, offset_range, produce, values

OFTEN = {"log.retention.check.interval.ms": "10"}
COMPACTED = {"cleanup_policy": "compact", "segment_ms": "1", "min_cleanable_dirty_ratio": "0"}


def until_begins_at(raw, topic, offset):
    eventually(lambda: offset_range(raw, topic)[0] == offset, lambda: offset_range(raw, topic))


@pytest.mark.partage_broker(OFTEN)
def test_retention_ms_removes_old_records(raw):
    create(raw, "t", retention_ms="1000")  # records of the test have timestamps of last year
    produce(raw, "t", batch(b"old"))
    until_begins_at(raw, "t", 1)
    assert offset_range(raw, "t") == (1, 1)
    assert produce(raw, "t", batch(b"next")).base_offset == 1


@pytest.mark.partage_broker(OFTEN)
def test_retention_bytes_removes_old_records(raw):
    create(raw, "t", retention_ms="-1", retention_bytes="20000", segment_bytes="1048576")
    for n in range(5):
        assert produce(raw, "t", batch(b"%d" % n * 500_000)).base_offset == n
    until_begins_at(raw, "t", 4)
    assert values(*fetch(raw, "t", [4])) == [b"4" * 500_000]


def keyed(value: bytes, at_ms: int) -> bytes:
    return encode_batch([SimpleRecord(b"key", value, timestamp_ms=at_ms)])


@pytest.mark.partage_broker({"log.cleaner.backoff.ms": "10"})
def test_cleaner_runs_at_its_own_interval(raw):
    """With the default ``log.retention.check.interval.ms`` it ran every five minutes only."""
    create(raw, "t", **COMPACTED)
    for n in range(4):
        produce(raw, "t", keyed(b"%d" % n, NOW_MS + 10 * n))
    eventually(lambda: values(*fetch(raw, "t")) == [b"2", b"3"])


@pytest.mark.partage_broker({"log.cleaner.backoff.ms": "10"})
def test_max_compaction_lag_is_honored(raw):
    """The dirty ratio alone would never start this compaction."""
    configs = {**COMPACTED, "min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": "100"}
    create(raw, "t", **configs)
    for n in range(4):  # a segment of each record
        produce(raw, "t", keyed(b"%d" % n, NOW_MS + 1000 * n))
    eventually(lambda: values(*fetch(raw, "t")) == [b"2", b"3"])
