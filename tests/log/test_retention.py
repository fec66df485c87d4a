"""Retention by time and size, and DeleteRecords."""

from __future__ import annotations

import pytest

from partage.log.catalogue.topic_config import LogConfig
from partage.log.results import Refusal
from partage.model.errors import ErrorCode

from .partition_host import NOW_MS, Host, batch

SIZE = len(batch(b"0" * 40))


def host_of(count: int, **configs: object) -> Host:
    """Return a host with batches of one record per second, two per segment."""
    host = Host(segment_bytes=2 * SIZE, **configs)
    host.write(*(batch(b"%d" % n * 40, at_ms=NOW_MS + 1000 * n) for n in range(count)))
    return host


def logs(host: Host) -> list[int]:
    return [int(name.split(".")[0]) for name in host.files() if name.endswith(".log")]


def test_old_segments_are_removed() -> None:
    host = host_of(6, retention_ms=10_000)
    assert host.log.apply_retention(NOW_MS + 11_000) is None
    host.perform(host.log.apply_retention(NOW_MS + 11_001))
    assert host.log.log_start_offset == 2
    assert logs(host) == [2, 4]
    refusal = host.log.locate(1, 100)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(host.records()) == 4


def test_young_segment_keeps_later_old_ones() -> None:
    host = Host(segment_bytes=SIZE, retention_ms=10_000)
    host.write(batch(b"0" * 40, at_ms=NOW_MS + 5000), batch(b"1" * 40, at_ms=NOW_MS))
    assert host.log.apply_retention(NOW_MS + 12_000) is None


def test_empty_segment_remains_when_all_expired() -> None:
    host = host_of(5, retention_ms=10_000)
    host.perform(host.log.apply_retention(NOW_MS + 100_000))
    assert (host.log.log_start_offset, host.log.end_offset, host.fetch(5)) == (5, 5, b"")
    assert logs(host) == [5]
    assert host.log.apply_retention(NOW_MS + 200_000) is None
    host.open()
    assert (host.log.log_start_offset, host.log.end_offset) == (5, 5)
    host.write(batch(b"next"))
    assert [record[0] for record in host.records()] == [5]


def test_segments_above_high_watermark_are_kept() -> None:
    host = host_of(2, retention_ms=10_000)
    host.append(batch(b"2" * 40, at_ms=NOW_MS))
    assert host.log.apply_retention(NOW_MS + 100_000) is not None
    assert host.log.log_start_offset == 2
    host.flush()
    assert len(host.records()) == 1


def test_oldest_segments_are_removed_above_retention_bytes() -> None:
    host = host_of(8, retention_ms=-1, retention_bytes=4 * SIZE)
    host.perform(host.log.apply_retention(NOW_MS))
    assert logs(host) == [4, 6]
    assert host.log.apply_retention(NOW_MS) is None


def test_without_limits_nothing_is_removed() -> None:
    assert host_of(8, retention_ms=-1).log.apply_retention(NOW_MS * 2) is None
    host = host_of(8)
    limits = {"retention.ms": "1", "retention.bytes": "1", "cleanup.policy": "compact"}
    host.log.config = LogConfig.from_configs(limits)
    assert host.log.apply_retention(NOW_MS * 2) is None


def test_records_without_timestamps_age_from_last_append() -> None:
    host = Host(retention_ms=1000)
    host.write(batch(b"a", at_ms=-1))
    assert host.log.apply_retention(NOW_MS + 1000) is None
    assert host.log.apply_retention(NOW_MS + 1001) is not None


@pytest.mark.parametrize("reopened", [False, True])
def test_delete_records_removes_records_then_segments(reopened: bool) -> None:
    host = host_of(6)
    host.perform(host.log.delete_records(3))
    if reopened:
        host.open()
    assert host.log.log_start_offset == 3
    assert [record[0] for record in host.records()] == [3, 4, 5]
    if not reopened:
        host.perform(host.log.apply_retention(NOW_MS))
    assert logs(host) == [2, 4]
    host.perform(host.log.delete_records(1))
    assert host.log.log_start_offset == 3


def test_delete_records_can_delete_everything() -> None:
    host = host_of(3)
    host.append(batch(b"more"))
    host.perform(host.log.delete_records(-1))
    assert host.log.log_start_offset == 3
    host.flush()
    assert len(host.records()) == 1


@pytest.mark.parametrize("before", [-2, 4])
def test_delete_records_out_of_range_is_refused(before: int) -> None:
    host = host_of(3)
    refusal = host.log.delete_records(before)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_of_compacted_topic_is_refused() -> None:
    refusal = Host(cleanup_policy="compact").log.delete_records(0)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.POLICY_VIOLATION
    assert not isinstance(Host(cleanup_policy="compact,delete").log.delete_records(0), Refusal)


def test_producer_state_outlives_deleted_records() -> None:
    host = Host(retention_ms=1000)
    host.write(batch(b"a", producer=(1, 0, 0)), batch(b"b", producer=(1, 0, 1)))
    host.perform(host.log.apply_retention(NOW_MS + 5000))
    host.open()
    assert host.append(batch(b"b", producer=(1, 0, 1))).base_offset == 1
    assert host.append(batch(b"c", producer=(1, 0, 2))).base_offset == 2
