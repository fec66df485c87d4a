"""The rule ``compaction`` accepts each correct compaction, and rejects what differs from it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from log.partition_host import DIRECTORY, NOW_MS, Host
from log.transactional import verified
from partage.lab.brokers.compaction_recorder import CompactionRecorder
from partage.lab.checkers.compaction import CompactionChecker
from partage.lab.environment.disk import CrashDisk
from partage.lab.history import History, LogCompacted, RuleViolationError, SegmentContent
from partage.log.compaction.cleaner import compact
from partage.log.compaction.segment_swap import begin_swap
from partage.log.results import AppendResult
from partage.model.topic_partition import TopicPartition
from partage.wire.primitives import encode_varint
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER_SIZE,
    BatchHeader,
    checksum,
    whole_batches,
)
from partage.wire.records.encoder import SimpleRecord, encode_batch

PARTITION = TopicPartition(DIRECTORY.removesuffix("-0"), 0)
RETENTION_MS = 1_600


class CompactedLog:
    """A log whose compactions are recorded and checked."""

    def __init__(self, *, is_checked: bool = True, **configs: object) -> None:
        self.disk = CrashDisk()
        self.host = Host(
            self.disk,
            segment_bytes=400,
            cleanup_policy="compact",
            delete_retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio=0.01,
            **configs,
        )
        self.history = History()
        if is_checked:
            CompactionChecker(self.history)
        self.recorder = CompactionRecorder(self.disk, 1, self.history.append)
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    def put(
        self, *pairs: tuple[bytes, bytes | None], producer_id: int = -1, is_written: bool = True
    ) -> int:
        """Append a batch, in a transaction if it has a producer; return its offset."""
        sequence, epoch = self.sequences.get(producer_id, 0), self.epochs.get(producer_id, 0)
        guard: Any = None
        fields: dict[str, Any] = {}
        if producer_id >= 0:
            guard = verified(self.host, producer_id, epoch, sequence)
            fields = {"producer_epoch": epoch, "base_sequence": sequence, "is_transactional": True}
            self.sequences[producer_id] = sequence + len(pairs)
        records = [SimpleRecord(*pair, timestamp_ms=self.host.now_ms) for pair in pairs]
        payload = encode_batch(records, producer_id=producer_id, **fields)
        appended = self.host.append(payload, guard=guard)
        if is_written:
            self.host.flush()
        return appended.base_offset

    def end(self, producer_id: int, *, is_commit: bool, raises_epoch: bool = False) -> int:
        """Append a marker; return its offset."""
        epoch = self.epochs.get(producer_id, 0)
        if raises_epoch:
            epoch += 1
            self.epochs[producer_id], self.sequences[producer_id] = epoch, 0
        appended = self.host.log.append_marker(
            producer_id,
            epoch,
            0,
            is_commit=is_commit,
            transaction_version=2 if raises_epoch else 0,
            at_ms=self.host.now_ms,
        )
        assert isinstance(appended, AppendResult)
        self.host.writes += appended.writes
        self.host.flush()
        return appended.base_offset

    def fill(self) -> None:
        """Append records with other keys, so that the segments before them are closed."""
        for n in range(12):
            self.put((b"fill%d" % n, b"." * 60))

    def compact(self) -> LogCompacted | None:
        host = self.host
        plan = host.log.plan_compaction(host.now_ms)
        if plan is None:
            return None
        host.log.abandon_compaction()
        tail = b"".join(bytes(chunk) for write in host.writes[-1:] for chunk in write.chunks)
        self.recorder.begin(PARTITION, host.log, tail, host.now_ms)
        host.compact()
        self.recorder.end(PARTITION, host.now_ms)
        entry = self.history.entries[-1]
        assert isinstance(entry, LogCompacted)
        return entry


def batches(segments: tuple[SegmentContent, ...]) -> list[BatchHeader]:
    return [header for one in segments for _, header in whole_batches(one.content)]


@pytest.mark.parametrize("seed", range(40))
def test_correct_compactions_are_accepted(seed: int) -> None:
    rng = Random(seed)
    log = CompactedLog(min_compaction_lag_ms=rng.choice((0, 0, 500)))
    is_open = dict.fromkeys(range(3), False)
    compactions = 0
    for _ in range(300):
        log.host.now_ms += rng.choice((0, 1, 30, 200))
        pairs = [
            (b"k%d" % rng.randrange(8), rng.choice((None, b"v" * rng.randrange(40))))
            for _ in range(rng.randrange(1, 4))
        ]
        producer_id = rng.randrange(3)
        draw = rng.random()
        if draw < 0.35:
            log.put(*pairs)
        elif draw < 0.5:
            log.put(*pairs, producer_id=producer_id)
            is_open[producer_id] = True
        elif draw < 0.85:
            producer_id = next((each for each in is_open if is_open[each]), producer_id)
            if is_open[producer_id] or rng.random() < 0.1:
                is_commit, raises_epoch = rng.random() < 0.5, rng.random() < 0.5
                log.end(producer_id, is_commit=is_commit, raises_epoch=raises_epoch)
                is_open[producer_id] = False
        elif draw < 0.87:
            log.host.open()
        else:
            compactions += log.compact() is not None
    assert compactions > 5


def sample(**configs: object) -> tuple[LogCompacted, dict[str, int]]:
    """Return a compaction of a log with all kinds of batches, and the offsets of these."""
    log = CompactedLog(is_checked=False, **configs)
    at = {
        "superseded": log.put((b"a", b"1"), (b"b", b"1")),
        "latest": log.put((b"a", b"2")),
        "tombstone": log.put((b"d", None)),
        "aborted": log.put((b"a", b"aborted"), producer_id=1),
        "abort": log.end(1, is_commit=False),
        "committed": log.put((b"c", b"1"), producer_id=2),
        "commit": log.end(2, is_commit=True, raises_epoch=True),
    }
    log.fill()
    at["open"] = log.put((b"a", b"3"), producer_id=3)
    log.fill()
    entry = log.compact()
    assert entry is not None
    return entry, at


def check(*entries: LogCompacted) -> None:
    history = History()
    CompactionChecker(history)
    for entry in entries:
        history.append(entry)


def replaced(entry: LogCompacted, change: Callable[[BatchHeader, bytes], bytes]) -> LogCompacted:
    """Return the entry with each batch after the compaction replaced."""
    after = tuple(
        SegmentContent(
            one.base_offset,
            b"".join(
                change(header, one.content[at : at + header.size])
                for at, header in whole_batches(one.content)
            ),
        )
        for one in entry.after
    )
    return msgspec.structs.replace(entry, after=after)


def without(entry: LogCompacted, offset: int) -> LogCompacted:
    return replaced(entry, lambda header, content: b"" if header.base_offset == offset else content)


def original(entry: LogCompacted, offset: int) -> LogCompacted:
    """Return the entry with one batch that the compaction did not change."""
    before = {
        header.base_offset: one.content[at : at + header.size]
        for one in entry.before
        for at, header in whole_batches(one.content)
    }
    return replaced(
        entry,
        lambda header, content: before[offset] if header.base_offset == offset else content,
    )


def test_sample_is_accepted() -> None:
    entry, at = sample()
    check(entry)
    kept = {header.base_offset: header.record_count for header in batches(entry.after)}
    assert kept[at["superseded"]] == 1
    assert kept[at["aborted"]] == 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("superseded", "the record at 1 is missing: it is the last one of its key"),
        ("latest", "is missing: it is the last one of its key"),
        ("tombstone", "it is a tombstone that was first seen 0 ms before"),
        ("aborted", "is missing, but it is the last one of producer 1"),
        ("abort", "the marker at 5 is missing, but it is needed"),
        ("commit", "the marker at 7 is missing, but it is needed"),
        ("open", "is active, unstable or young, but it changed"),
    ],
)
def test_missing_batch_is_rejected(name: str, problem: str) -> None:
    entry, at = sample()
    with pytest.raises(RuleViolationError, match=problem):
        check(without(entry, at[name]))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("superseded", "the record at 0 was not removed: 2 has the same key"),
        ("aborted", "the record at 4 was not removed: its transaction was aborted"),
    ],
)
def test_record_that_was_not_removed_is_rejected(name: str, problem: str) -> None:
    entry, at = sample()
    with pytest.raises(RuleViolationError, match=problem):
        check(original(entry, at[name]))


def test_changed_batch_is_rejected() -> None:
    entry, at = sample()

    def change(header: BatchHeader, content: bytes) -> bytes:
        if header.base_offset != at["superseded"]:
            return content
        record = SimpleRecord(b"b", b"1", timestamp_ms=NOW_MS, offset_delta=1)
        return encode_batch([record], base_offset=0, leader_epoch=0, base_sequence=7)

    with pytest.raises(RuleViolationError, match="the batch at 0 is not that before"):
        check(replaced(entry, change))


def test_young_record_is_not_compacted() -> None:
    entry, _ = sample()
    with pytest.raises(RuleViolationError, match="is active, unstable or young"):
        check(msgspec.structs.replace(entry, min_compaction_lag_ms=1))


def test_active_segment_is_not_compacted() -> None:
    entry, _ = sample()
    with pytest.raises(RuleViolationError, match="is active, unstable or young"):
        check(msgspec.structs.replace(entry, active_segment=0))


def test_log_that_was_not_compacted_is_rejected() -> None:
    entry, _ = sample()
    with pytest.raises(RuleViolationError, match="was not removed"):
        check(msgspec.structs.replace(entry, after=entry.before))


def repeated(*ages_ms: int) -> list[LogCompacted]:
    """Return compactions of the log of `sample` at these times after the first one."""
    log = CompactedLog(is_checked=False)
    log.put((b"d", None))
    log.put((b"a", b"aborted"), producer_id=1)
    log.end(1, is_commit=False)
    log.put((b"b", b"1"), producer_id=1)
    log.end(1, is_commit=True)
    entries = []
    for age_ms in (0, *ages_ms):
        log.host.now_ms = NOW_MS + age_ms
        log.fill()
        entry = log.compact()
        assert entry is not None
        entries.append(entry)
    return entries


def test_tombstone_and_marker_are_removed_after_the_retention() -> None:
    entries = repeated(100, RETENTION_MS - 1, RETENTION_MS + 100)
    check(*entries)
    assert [header.base_offset for header in batches(entries[-1].after)][:2] == [3, 4]
    late = msgspec.structs.replace(entries[-1], after=entries[-1].before)
    with pytest.raises(RuleViolationError, match="was not removed"):
        check(*entries[:-1], late)
    with pytest.raises(RuleViolationError, match="the record at 0 is missing: it is a tombstone"):
        check(entries[0], without(entries[1], 0))


def test_marker_is_removed_neither_early_nor_late() -> None:
    entries = repeated(100, RETENTION_MS - 1, RETENTION_MS + 100)
    with pytest.raises(RuleViolationError, match="the marker at 2 is missing 101 ms too early"):
        check(*entries[:2], without(entries[2], 2))
    later = repeated(100, RETENTION_MS - 1)
    marker = msgspec.structs.replace(later[-1], began_ms=NOW_MS + RETENTION_MS + 100)
    with pytest.raises(RuleViolationError, match="the marker at 2 was not removed in time"):
        check(*later[:2], without(marker, 0))
    with pytest.raises(RuleViolationError, match="the marker at 2 has another delete horizon"):
        check(entries[0], original(entries[1], 2))


def test_last_batch_of_a_producer_may_be_unwritten() -> None:
    """The log knows the newest batch, so an earlier one need not stay."""
    log = CompactedLog()
    first = log.put((b"a", b"1"), producer_id=1)
    log.end(1, is_commit=False)
    log.fill()
    log.put((b"a", b"2"), producer_id=1, is_written=False)
    entry = log.compact()
    assert entry is not None
    assert first not in [header.base_offset for header in batches(entry.after)]


def test_changed_time_of_marker_is_rejected() -> None:
    entries = repeated(100)

    def change(header: BatchHeader, content: bytes) -> bytes:
        if header.base_offset != 2:
            return content
        at = HEADER_SIZE + 2  # the time of the record, after its length and attributes
        time = encode_varint(1 + NOW_MS - header.base_timestamp_ms)
        changed = bytearray(content[:at] + time + content[at + len(time) :])
        changed[CRC_FROM - 4 : CRC_FROM] = checksum(changed, 0, len(changed)).to_bytes(4, "big")
        return bytes(changed)

    with pytest.raises(RuleViolationError, match="the marker at 2 is not that before"):
        check(entries[0], replaced(entries[1], change))


@pytest.mark.parametrize("is_begun", [False, True])
def test_interrupted_compaction_takes_place_or_not(is_begun: bool) -> None:
    log = CompactedLog()
    log.put((b"a", b"1"))
    log.put((b"a", b"2"))
    log.fill()
    host = log.host
    plan = host.log.plan_compaction(host.now_ms)
    assert plan is not None
    log.recorder.begin(PARTITION, host.log, b"", host.now_ms)
    compacted = compact(host.disk, plan)
    if not is_begun:
        host.disk.remove(f"{DIRECTORY}/compaction.swap")
        host.disk.sync_directory(DIRECTORY)
    else:
        begin_swap(host.disk, DIRECTORY, compacted.swap)
    log.disk.crash(Random(1))
    host.open()
    log.recorder.end(PARTITION, host.now_ms)
    [entry] = log.history.entries
    assert isinstance(entry, LogCompacted)
    assert entry.is_complete is is_begun
    assert (0 in [header.base_offset for header in batches(entry.after)]) is not is_begun
    torn = msgspec.structs.replace(entry, is_complete=not is_begun)
    with pytest.raises(RuleViolationError, match=r"was not removed|was given up"):
        check(torn)
