"""Log compaction."""

from __future__ import annotations

import errno

import pytest

from partage.lab.environment.disk import CrashDisk
from partage.log.catalogue.topic_config import LogConfig
from partage.log.compaction.cleaner import compact
from partage.log.compaction.plan import CleanableSegment, find_cleanable
from partage.log.compaction.segment_swap import CompactionProgress, finish_swap
from partage.log.errors import DamagedLogError
from partage.log.layout import LOG_SUFFIX
from partage.log.memory_disk import MemoryDisk
from partage.log.segments.batch_reader import check_slice
from partage.wire.records.batch import Compression, parse_header, whole_batches
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import DIRECTORY, NOW_MS, Host, Pair, batch, unreadable

DAY_MS = 86_400_000
VALUE = b"v" * 40


def host_of(*pairs: Pair, **configs: object) -> Host:
    """Return a host with one batch per pair, about three per segment."""
    host = Host(**{"segment_bytes": 400, "cleanup_policy": "compact", **configs})
    host.write(*map(batch, pairs))
    return host


def closed_by(host: Host) -> Host:
    """Close the active segment by filling it."""
    end = host.log.end_offset
    while host.log.plan_compaction(host.now_ms) is None or _planned_end(host) < end:
        host.log.abandon_compaction()
        host.write(batch((b"filler", VALUE)))
    host.log.abandon_compaction()
    return host


def _planned_end(host: Host) -> int:
    host.log.abandon_compaction()
    plan = host.log.plan_compaction(host.now_ms)
    assert plan is not None
    return plan.end_offset


def kept(host: Host) -> list[tuple[int, bytes | None]]:
    return [(record[0], record[2]) for record in host.records() if record[2] != b"filler"]


def test_compaction_keeps_last_record_of_each_key() -> None:
    keys = [b"a", b"b", b"a", b"c", b"b", b"a", b"d"]
    host = closed_by(host_of(*((key, VALUE) for key in keys)))
    before = {record[0]: record for record in host.records()}
    compacted = host.compact()
    assert compacted is not None
    assert kept(host) == [(3, b"c"), (4, b"b"), (5, b"a"), (6, b"d")]
    assert all(before[record[0]] == record for record in host.records())
    for _ in range(2):
        host.open()
        assert kept(host) == [(3, b"c"), (4, b"b"), (5, b"a"), (6, b"d")]


def test_batch_is_rewritten_with_retained_records() -> None:
    records = [
        SimpleRecord(b"a", b"1" * 99, [("h", b"x"), ("n", None)], NOW_MS),
        SimpleRecord(b"b", b"2" * 99, (), NOW_MS + 7),
        SimpleRecord(b"a", b"3" * 99, [("h", b"y")], NOW_MS + 5),
        SimpleRecord(b"c", b"4" * 99, (), NOW_MS + 2),
    ]
    host = Host(segment_bytes=700, cleanup_policy="compact")
    host.write(encode_batch(records, producer_id=5, producer_epoch=1, base_sequence=0))
    host.write(encode_batch(records, compression=Compression.ZSTD))
    host.write(*[batch((b"filler", VALUE))] * 8)
    before = {record[0]: record for record in host.records()}
    host.compact()
    assert [record[0] for record in host.records()][:3] == [5, 6, 7]
    assert all(before[record[0]] == record for record in host.records())
    first, second, *_ = (header for _, header in whole_batches(host.fetch(0)))
    assert (first.record_count, first.base_offset, first.last_offset) == (0, 0, 3)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (5, 1, 0)
    assert (second.record_count, second.base_offset, second.last_offset) == (3, 4, 7)
    assert second.compression == Compression.ZSTD
    assert second.max_timestamp_ms == NOW_MS + 7


def test_fetch_in_gap_continues_after_it() -> None:
    host = closed_by(host_of(*((b"a", VALUE) for _ in range(9)), (b"b", VALUE)))
    host.compact()
    for offset in range(10):
        header = parse_header(host.fetch(offset))
        assert header.last_offset >= offset
    assert host.log.log_start_offset == 0
    assert host.log.timestamp_lookup(0)() == (8, NOW_MS)


def test_small_segments_are_merged() -> None:
    host = closed_by(host_of(*((b"a", VALUE) for _ in range(20)), segment_bytes=1000))
    for _ in range(3):
        closed_by(host)
        host.compact()
    logs = [name for name in host.files() if name.endswith(".log")]
    assert len(logs) <= 4
    host.open()
    assert kept(host) == [(19, b"a")]


def test_tombstone_is_kept_for_delete_retention_ms() -> None:
    host = closed_by(
        host_of((b"a", VALUE), (b"b", VALUE), (b"a", None), delete_retention_ms=DAY_MS)
    )
    host.compact()
    assert kept(host) == [(1, b"b"), (2, b"a")]
    host.now_ms += DAY_MS - 1
    closed_by(host).compact()
    assert kept(host) == [(1, b"b"), (2, b"a")]
    host.open()
    host.now_ms += 1
    closed_by(host).compact()
    assert kept(host) == [(1, b"b")]


def test_old_tombstone_is_kept_from_its_first_compaction() -> None:
    host = host_of((b"a", VALUE), (b"a", None), delete_retention_ms=DAY_MS)
    host.now_ms += 10 * DAY_MS
    closed_by(host).compact()
    assert kept(host) == [(1, b"a")]


def test_tombstone_is_removed_after_wall_clock_was_set_back() -> None:
    host = host_of((b"a", VALUE), (b"a", None), delete_retention_ms=DAY_MS)
    host.now_ms += 1_000 * DAY_MS
    closed_by(host).compact()
    host.now_ms -= 1_000 * DAY_MS
    host.write(batch((b"b", VALUE)), batch((b"b", None)))
    closed_by(host).compact()
    host.now_ms += DAY_MS - 1
    closed_by(host).compact()
    assert kept(host) == [(1, b"a"), (_offset_of_last(host, b"b"), b"b")]
    host.open()
    for _ in range(2):
        host.now_ms += DAY_MS
        closed_by(host).compact()
    assert kept(host) == []


def _offset_of_last(host: Host, key: bytes) -> int:
    return max(record[0] for record in host.records() if record[2] == key)


def test_compaction_holds_at_most_keys_max() -> None:
    pairs = [(b"%d" % (n % 7), b"%d" % n * 20) for n in range(21)]
    host = closed_by(host_of(*pairs, min_cleanable_dirty_ratio=0))
    rounds = 0
    while host.compact(keys_max=3):
        rounds += 1
        found = {record[2]: record[3] for record in host.records()}
        assert all(found[key] == value for key, value in pairs[14:])
        assert rounds < 20
    assert rounds > 1
    assert kept(host) == [(n, b"%d" % (n % 7)) for n in range(14, 21)]


def test_compaction_starts_at_dirty_ratio() -> None:
    host = host_of(*((b"%d" % n, VALUE) for n in range(12)), min_cleanable_dirty_ratio=0.5)
    closed_by(host)
    assert host.compact() is not None
    assert host.compact() is None
    host.write(*[batch((b"x", VALUE))] * 6)
    assert host.compact() is None  # less than half is dirty
    host.write(*[batch((b"x", VALUE))] * 12)
    assert host.compact() is not None


@pytest.mark.parametrize(
    ("clean", "dirty", "ratio", "is_compacted"),
    [
        (0, 1, 0.0, True),
        (1, 0, 0.0, False),
        (0, 0, 0.0, False),
        (1, 1, 0.5, False),
        (1, 1, 0.49, True),
        (3, 2, 0.4, False),
        (3, 2, 0.39, True),
        (0, 3, 1.0, False),
        (0, 3, 0.99, True),
    ],
)
def test_dirty_ratio_must_be_exceeded(
    clean: int, dirty: int, ratio: float, is_compacted: bool
) -> None:
    """As in Kafka, so that with the ratio 1 only ``max.compaction.lag.ms`` starts a compaction."""
    segments = [
        CleanableSegment(n, n + 1, size=100, newest_ms=NOW_MS, oldest_ms=NOW_MS)
        for n in range(clean + dirty)
    ]
    progress = CompactionProgress(clean)
    for lag_ms, expected in ((0, is_compacted), (1_000, is_compacted), (1_001, dirty > 0)):
        config = LogConfig.from_configs(
            {"min.cleanable.dirty.ratio": str(ratio), "max.compaction.lag.ms": "1000"}
        )
        found = find_cleanable(segments, config, progress, NOW_MS + lag_ms)
        assert list(found) == (segments if expected else [])


def test_compaction_honors_min_and_max_lag() -> None:
    host = host_of(*((b"a", VALUE) for _ in range(9)), min_compaction_lag_ms=1000)
    assert host.compact() is None
    host.now_ms += 1000
    assert host.compact() is not None
    host = host_of(
        *((b"%d" % n, VALUE) for n in range(30)),
        min_cleanable_dirty_ratio=0.99,
        max_compaction_lag_ms=1000,
    )
    assert host.compact() is not None
    host.write(*[batch((b"a", VALUE))] * 6)
    assert host.compact() is None
    host.now_ms += 1001
    assert host.compact() is not None


@pytest.fixture
def hollow_host() -> Host:
    """A host whose first segments have one empty batch: the last one of an idempotent producer."""
    host = host_of(
        cleanup_policy="compact,delete",
        min_compaction_lag_ms=1000,
        retention_ms=DAY_MS,
        delete_retention_ms=0,
    )
    host.write(batch((b"a", VALUE), producer=(1, 0, 0)))
    host.write(*(batch((b"a", VALUE)) for _ in range(3)))
    for key in b"abab":
        host.now_ms += 1001
        host.write(*(batch((b"%c" % key, VALUE), at_ms=host.now_ms) for _ in range(4)))
        host.compact()
    headers = [header for _, header in whole_batches(host.fetch(0))]
    assert headers[0].record_count == 0
    assert headers[0].next_offset < headers[1].base_offset
    return host


def test_segment_without_records_does_not_stop_compaction(hollow_host: Host) -> None:
    host = hollow_host
    host.now_ms += 1001
    host.write(batch((b"c", VALUE), at_ms=host.now_ms))  # now, after everything else
    assert host.compact() is not None


def test_segment_without_records_expires(hollow_host: Host) -> None:
    host = hollow_host
    host.now_ms += DAY_MS
    host.write(batch((b"c", VALUE), at_ms=host.now_ms))
    assert host.log.apply_retention(host.now_ms) is not None


def test_max_lag_counts_from_first_dirty_record() -> None:
    """KIP-354: a segment that fills slowly must not double the time that its records wait."""
    host = Host(
        segment_bytes=400,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.99,
        max_compaction_lag_ms=1000,
    )
    host.write(*[batch((b"%d" % n, VALUE)) for n in range(9)])
    assert host.compact() is not None
    for lag_ms in (0, 300, 600, 900, 990, 1000):
        host.now_ms = NOW_MS + lag_ms
        host.write(batch((b"a", VALUE), at_ms=host.now_ms))
        assert host.compact() is None
    host.now_ms = NOW_MS + 1001
    assert host.compact() is not None


def test_uncompacted_topic_is_unchanged() -> None:
    assert host_of(*((b"a", VALUE) for _ in range(9)), cleanup_policy="delete").compact() is None


def test_appends_and_reads_continue_during_compaction() -> None:
    host = closed_by(host_of(*((b"a", VALUE) for _ in range(9))))
    plan = host.log.plan_compaction(NOW_MS)
    assert plan is not None
    assert host.log.plan_compaction(NOW_MS) is None  # one compaction at a time
    slices = host.log.locate(4, 10_000)
    host.write(*[batch((b"b", VALUE))] * 6)
    compacted = compact(host.disk, plan)
    host.write(*[batch((b"c", VALUE))] * 6)
    end = host.log.end_offset
    assert host.log.apply_retention(NOW_MS * 2) is None
    host.log.apply_compaction(compacted)
    assert isinstance(slices, list)
    stale = slices[0]
    content = host.disk.read(stale.path, stale.position, stale.length)
    assert check_slice(stale, content) is not None
    finish_swap(host.disk, DIRECTORY, compacted.swap)
    assert [offset for offset, key in kept(host) if key == b"a"] == [8]
    assert host.records()[-1][0] == end - 1
    host.open()
    assert host.records()[-1][0] == end - 1


class KeepingDisk(MemoryDisk):
    """Fails once to remove a segment."""

    has_failed = False

    def remove(self, path: str) -> None:
        if path.endswith(LOG_SUFFIX) and not self.has_failed:
            self.has_failed = True
            raise OSError(errno.EIO, "it stays", path)
        super().remove(path)


def test_failed_removal_is_repeated_by_next_compaction() -> None:
    small = LogConfig.from_configs({"segment.bytes": "400", "cleanup.policy": "compact"})
    large = LogConfig.from_configs({"segment.bytes": "700", "cleanup.policy": "compact"})
    host = Host(KeepingDisk())
    for value in (b"0", b"1"):
        host.log.config = small
        host.write(*[batch((b"a", VALUE + value))] * 9)
        host.log.config = large  # so that segments are merged
        if value == b"0":
            with pytest.raises(OSError, match="it stays"):
                host.compact()
    assert host.compact() is not None
    records = host.records()
    assert [record[0] for record in records] == [14, 15, 16, 17]
    host.open()
    assert host.records() == records


@pytest.mark.parametrize("position", [100, 3, 7])
def test_damaged_segment_is_not_compacted(position: int) -> None:
    """The checksum does not cover the first eight bytes, the base offset."""
    disk = CrashDisk()
    host = Host(disk, segment_bytes=400, cleanup_policy="compact")
    host.write(*[batch((b"a", VALUE))] * 9)
    disk.damage(f"{DIRECTORY}/00000000000000000000.log", position)
    plan = host.log.plan_compaction(NOW_MS)
    assert plan is not None
    with pytest.raises(DamagedLogError) as caught:
        compact(disk, plan)
    assert caught.value.position == 0, "the damaged batch begins there"
    host.log.abandon_compaction()
    assert host.log.plan_compaction(NOW_MS) is not None


def test_unreadable_batch_is_kept() -> None:
    """The batch dates from before the topic was compacted, and was never decompressed."""
    host = Host(segment_bytes=400)
    host.write(batch((b"a", VALUE)), unreadable(batch((b"a", VALUE), compression=1)))
    host.log.config = LogConfig.from_configs({"segment.bytes": "400", "cleanup.policy": "compact"})
    host.write(*[batch((b"a", VALUE))] * 9)
    assert host.compact() is not None
    (header, *others) = (header for _, header in whole_batches(host.fetch(0)))
    assert (header.base_offset, header.compression) == (1, Compression.GZIP)
    assert others


def test_control_batches_are_kept() -> None:
    host = Host(segment_bytes=400, cleanup_policy="compact")
    host.append(encode_batch([SimpleRecord(b"\0\0\0\2", b"x")], is_control=True), from_client=False)
    host.write(*[batch((b"a", VALUE))] * 12)
    host.compact()
    assert parse_header(host.fetch(0)).is_control
