"""Retention in a running broker; ``tests/log`` tests which records are removed."""

from __future__ import annotations

import time

import pytest

from .requests import batch, create, fetch, offset_range, produce, values

pytestmark = pytest.mark.partage_broker({"log.retention.check.interval.ms": "10"})


def until_begins_at(raw, topic, offset):
    give_up = time.monotonic() + 20
    while offset_range(raw, topic)[0] != offset:
        assert time.monotonic() < give_up, offset_range(raw, topic)


def test_retention_ms_removes_old_records(raw):
    create(raw, "t", retention_ms="1000")  # records of the test have timestamps of last year
    produce(raw, "t", batch(b"old"))
    until_begins_at(raw, "t", 1)
    assert offset_range(raw, "t") == (1, 1)
    assert produce(raw, "t", batch(b"next")).base_offset == 1


def test_retention_bytes_removes_old_records(raw):
    create(raw, "t", retention_ms="-1", retention_bytes="20000", segment_bytes="1048576")
    for n in range(5):
        assert produce(raw, "t", batch(b"%d" % n * 500_000)).base_offset == n
    until_begins_at(raw, "t", 4)
    assert values(*fetch(raw, "t", [4])) == [b"4" * 500_000]
