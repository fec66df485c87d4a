"""Random sequences of actions with power failures: no acknowledged record is lost.

The model is a list of records. After a crash the log must hold all acknowledged records at their
offsets. Of the others it must hold a prefix.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.log.results import DurableStep, Refusal
from partage.wire.records.columns import RecordTuple

from .partition_host import Host, batch
from .property_settings import PROPERTY_SETTINGS

KEYS = [b"a", b"b", b"c", b"d"]
PRODUCER = 7
ACTIONS = ["nothing", "flush", "close", "retain", "compact", "checkpoint", "delete"]


class Expected(NamedTuple):
    key: bytes | None
    value: bytes | None


class Sent(NamedTuple):
    """Return a batch of the idempotent producer."""

    payload: bytes
    base_offset: int
    next_sequence: int


class CrashingLog(RuleBasedStateMachine):
    """A model of one partition. ``appended`` maps offsets to all records that received one."""

    configs: dict[str, object] = {
        "segment_bytes": 600,
        "index_interval_bytes": 100,
        "retention_ms": 3000,
        "retention_bytes": 3000,
    }
    is_keyed = False
    syncs = True

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = CrashDisk()
        self.host = Host(self.disk, **self.configs)
        self.appended: list[Expected] = []
        self.shown_end = 0
        self.durable_end = 0
        self.durable_start = 0
        self.sent: list[Sent] = []
        self.serial = 0

    @rule(sizes=st.lists(st.none() | st.integers(0, 120), min_size=1, max_size=4))
    def append(self, sizes: list[int | None]) -> None:
        keys = KEYS if self.is_keyed else [*KEYS, None]
        records = [
            Expected(self.rng.choice(keys), None if size is None else self._value(size))
            for size in sizes
        ]
        self.host.append(batch(*records, at_ms=self.host.now_ms))
        self.appended += records

    @rule(count=st.integers(1, 3))
    def append_in_sequence(self, count: int) -> None:
        sequence = self.sent[-1].next_sequence if self.sent else 0
        records = [Expected(self.rng.choice(KEYS), self._value(10)) for _ in range(count)]
        payload = batch(*records, at_ms=self.host.now_ms, producer=(PRODUCER, 0, sequence))
        appended = self.host.append(payload)
        assert appended.base_offset == len(self.appended)
        self.sent.append(Sent(payload, appended.base_offset, sequence + count))
        self.appended += records

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(1, 5))
    def append_again(self, which: int) -> None:
        sent = self.sent[-min(which, len(self.sent))]
        appended = self.host.append(sent.payload)
        assert appended.base_offset == sent.base_offset
        assert not appended.writes

    @rule(sync_marker=st.booleans())
    def flush(self, sync_marker: bool) -> None:
        self.host.flush(sync=self.syncs, sync_marker=sync_marker)
        self.shown_end = len(self.appended)
        if self.syncs:
            self.durable_end = self.shown_end

    @rule(ms=st.integers(1, 1500))
    def wait(self, ms: int) -> None:
        self.host.now_ms += ms

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.host.log
        before = int(log.log_start_offset + share * (log.high_watermark - log.log_start_offset))
        step = log.delete_records(before)
        if not isinstance(step, Refusal):
            self.perform(step)

    @rule()
    def retain(self) -> None:
        if step := self.host.log.apply_retention(self.host.now_ms):
            self.perform(step)

    @rule()
    def compact(self) -> None:
        if self.host.compact():
            self.durable_end = self.shown_end

    @rule()
    def checkpoint(self) -> None:
        self.perform(self.host.log.checkpoint())

    def perform(self, step: DurableStep) -> None:
        self.host.perform(step)
        self.durable_end = self.shown_end
        self.durable_start = self.host.log.log_start_offset

    @rule()
    def close_and_open(self) -> None:
        self.flush(sync_marker=False)
        self.perform(self.host.log.close())
        opened = self.host.open()
        assert not opened.truncations
        assert not opened.scanned_bytes
        assert self.host.log.end_offset == self.durable_end

    @rule(
        action=st.sampled_from(ACTIONS),
        after=st.integers(0, 30),
        killed=st.booleans(),
        again=st.lists(st.integers(0, 12), max_size=3),
    )
    def crash(self, action: str, after: int, killed: bool, again: list[int]) -> None:
        """Fail during an action, and optionally during recovery.

        Optionally the process alone dies first, which loses no written bytes.
        """
        start = self.host.log.log_start_offset
        self.disk.crash_after = after
        try:
            if action == "flush":
                self.flush(sync_marker=True)
            elif action == "close":
                self.perform(self.host.log.close())
            elif action == "retain":
                self.retain()
            elif action == "compact":
                self.compact()
            elif action == "checkpoint":
                self.checkpoint()
            elif action == "delete":
                self.delete_records(0.5)
        except PowerLossError:
            pass
        start = max(start, self.host.log.log_start_offset)
        self.disk.crash_after = None
        if not killed:
            self.disk.crash(self.rng)
        for more in again:
            self.disk.crash_after = more
            try:
                self.host.open()
            except PowerLossError:
                self.disk.crash(self.rng)
            self.disk.crash_after = None
        self.host.open()
        log = self.host.log
        assert self.durable_end <= log.end_offset <= len(self.appended)
        assert self.durable_start <= log.log_start_offset <= start
        assert log.high_watermark == log.end_offset
        self.durable_end = self.shown_end = log.end_offset
        self.durable_start = log.log_start_offset
        del self.appended[log.end_offset :]
        self.sent = [one for one in self.sent if one.base_offset < log.end_offset]

    @invariant()
    def everything_durable_can_be_read(self) -> None:
        if hasattr(self, "host"):
            log = self.host.log
            assert log.end_offset == len(self.appended)
            assert log.high_watermark == self.shown_end
            self.check(self.host.records())

    def check(self, records: list[RecordTuple]) -> None:
        start = self.host.log.log_start_offset
        assert [record[0] for record in records] == list(range(start, self.shown_end))
        expected = self.appended[start : self.shown_end]
        assert [Expected(*record[2:4]) for record in records] == expected

    def _value(self, size: int) -> bytes:
        self.serial += 1
        return b"%d:" % self.serial + self.rng.randbytes(size)


class CompactedLog(CrashingLog):
    """The same model for a compacted topic: the last record of each key stays, and none is
    invented.
    """

    configs = {
        "segment_bytes": 600,
        "index_interval_bytes": 100,
        "cleanup_policy": "compact,delete",
        "min_cleanable_dirty_ratio": 0.2,
        "delete_retention_ms": 2000,
    }
    is_keyed = True

    def check(self, records: list[RecordTuple]) -> None:
        start = self.host.log.log_start_offset
        latest = {self.appended[offset].key: offset for offset in range(start, self.shown_end)}
        found = [record[0] for record in records]
        assert found == sorted(set(found))
        for offset, _, *record, _ in records:
            assert start <= offset < self.shown_end
            assert Expected(*record) == self.appended[offset]
        missing = set(latest.values()) - set(found)
        assert all(self.appended[offset].value is None for offset in missing)


class UnsyncedLog(CrashingLog):
    """The same model with ``--sync os``: only checkpoints are durable."""

    syncs = False


TestCrashingLog = CrashingLog.TestCase
TestCrashingLog.settings = PROPERTY_SETTINGS
TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = PROPERTY_SETTINGS
TestUnsyncedLog = UnsyncedLog.TestCase
TestUnsyncedLog.settings = PROPERTY_SETTINGS
