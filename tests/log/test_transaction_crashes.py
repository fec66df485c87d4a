"""Random transactions with power failures: a read_committed reader sees exactly what committed.

The model is a list of everything that was appended. What a reader may see follows from it alone.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.log.results import AppendResult, Refusal
from partage.wire.records.batch import whole_batches
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import Host
from .property_settings import PROPERTY_SETTINGS

KEYS = [b"a", b"b", b"c"]
PRODUCERS = (1, 2, 3)
NO_PRODUCER = -1
ACTIONS = ["nothing", "flush", "close", "compact", "retain"]


class Entry(NamedTuple):
    """An offset of the log: a record, or a marker of a transaction."""

    producer_id: int
    epoch: int
    key: bytes | None = None
    value: bytes | None = None
    is_commit: bool | None = None  # None for a record


class View(NamedTuple):
    """The state of the transactions after the entries up to some offset."""

    committed: dict[int, Entry]  # records outside transactions, and of committed ones
    open_from: dict[int, int]  # first offset of open transactions by producer
    aborted: set[tuple[int, int]]  # producer and first offset
    sequences: dict[int, tuple[int, int]]  # epoch and next sequence by producer


def view_of(entries: list[Entry]) -> View:
    view = View({}, {}, set(), {})
    pending: dict[int, dict[int, Entry]] = {}
    for offset, entry in enumerate(entries):
        producer_id = entry.producer_id
        if producer_id == NO_PRODUCER:
            view.committed[offset] = entry
            continue
        epoch, sequence = view.sequences.get(producer_id, (0, 0))
        if entry.epoch != epoch:
            sequence = 0
        if entry.is_commit is None:
            view.open_from.setdefault(producer_id, offset)
            pending.setdefault(producer_id, {})[offset] = entry
            sequence += 1
        else:
            first = view.open_from.pop(producer_id, None)
            records = pending.pop(producer_id, {})
            if entry.is_commit:
                view.committed.update(records)
            elif first is not None:
                view.aborted.add((producer_id, first))
        view.sequences[producer_id] = entry.epoch, sequence
    return view


class TransactionalLog(RuleBasedStateMachine):
    """A model of one partition."""

    configs: dict[str, object] = {"segment_bytes": 500, "index_interval_bytes": 100}
    syncs = True

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = CrashDisk()
        self.host = Host(self.disk, **self.configs)
        self.entries: list[Entry] = []
        self.shown_end = 0
        self.durable_end = 0
        self.serial = 0

    @rule(producer_id=st.sampled_from([*PRODUCERS, NO_PRODUCER]), count=st.integers(1, 3))
    def append(self, producer_id: int, count: int) -> None:
        epoch, sequence = view_of(self.entries).sequences.get(producer_id, (0, 0))
        is_transactional = producer_id != NO_PRODUCER
        added = [Entry(producer_id, epoch, *self._pair()) for _ in range(count)]
        payload = encode_batch(
            [SimpleRecord(one.key, one.value, timestamp_ms=self.host.now_ms) for one in added],
            producer_id=producer_id,
            producer_epoch=epoch if is_transactional else -1,
            base_sequence=sequence if is_transactional else -1,
            is_transactional=is_transactional,
        )
        guard = None
        if is_transactional:
            guard = self.host.log.producer_state.start_verification(
                producer_id, epoch, sequence, raises_epochs=False, at_ms=self.host.now_ms
            )
            assert not isinstance(guard, Refusal)
        appended = self.host.append(payload, guard=guard)
        assert appended.base_offset == len(self.entries)
        self.entries += added

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        is_commit=st.booleans(),
        raises_epoch=st.booleans(),
    )
    def end(self, producer_id: int, is_commit: bool, raises_epoch: bool) -> None:
        epoch = view_of(self.entries).sequences.get(producer_id, (0, 0))[0] + raises_epoch
        appended = self.host.log.append_marker(
            producer_id,
            epoch,
            0,
            is_commit=is_commit,
            transaction_version=2 if raises_epoch else 1,
            at_ms=self.host.now_ms,
        )
        assert isinstance(appended, AppendResult)
        assert appended.base_offset == len(self.entries)
        self.host.writes += appended.writes
        self.entries.append(Entry(producer_id, epoch, is_commit=is_commit))

    @rule(sync_marker=st.booleans())
    def flush(self, sync_marker: bool) -> None:
        self.host.flush(sync=self.syncs, sync_marker=sync_marker)
        self.shown_end = len(self.entries)
        if self.syncs:
            self.durable_end = self.shown_end

    @rule()
    def compact(self) -> None:
        if self.host.compact():
            self.durable_end = self.shown_end

    @rule(ms=st.integers(1, 1500))
    def wait(self, ms: int) -> None:
        self.host.now_ms += ms

    @rule(share=st.floats(0, 1))
    def retain(self, share: float) -> None:
        log = self.host.log
        log.log_start_offset += int(share * (log.high_watermark - log.log_start_offset))
        if step := log.apply_retention(self.host.now_ms):
            self.host.perform(step)
            self.durable_end = self.shown_end

    @rule()
    def close_and_open(self) -> None:
        self.flush(sync_marker=False)
        self.host.close()
        self.durable_end = self.shown_end
        assert not self.host.open().scanned_bytes

    @rule(action=st.sampled_from(ACTIONS), after=st.integers(0, 30), killed=st.booleans())
    def crash(self, action: str, after: int, killed: bool) -> None:
        """Fail during an action. Optionally the process alone dies, which loses no bytes."""
        self.disk.crash_after = after
        try:
            if action == "flush":
                self.flush(sync_marker=True)
            elif action == "close":
                self.host.close()
            elif action == "compact":
                self.compact()
            elif action == "retain":
                self.retain(0.5)
        except PowerLossError:
            pass
        self.disk.crash_after = None
        if not killed:
            self.disk.crash(self.rng)
        self.host.open()
        end_offset = self.host.log.end_offset
        assert self.durable_end <= end_offset <= len(self.entries)
        del self.entries[end_offset:]
        self.durable_end = self.shown_end = end_offset

    @invariant()
    def reader_sees_what_committed(self) -> None:
        if not hasattr(self, "host"):
            return
        log, view = self.host.log, view_of(self.entries[: self.shown_end])
        first = min(view.open_from.values(), default=self.shown_end)
        assert log.high_watermark == self.shown_end
        assert log.last_stable_offset == max(first, log.log_start_offset)
        expected = {
            offset: (entry.key, entry.value)
            for offset, entry in view.committed.items()
            if log.log_start_offset <= offset < log.last_stable_offset
        }
        self.check(self.committed_records(view), expected)

    def committed_records(self, view: View) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Read as a read_committed consumer, a few batches at a time."""
        log, records = self.host.log, {}
        offset = log.log_start_offset
        while True:
            slices = log.locate(offset, 300, only_stable=True)
            assert not isinstance(slices, Refusal)
            if not slices:
                return records
            aborted = log.aborted_transactions(offset, slices)
            found = [(one.producer_id, one.first_offset) for one in aborted]
            assert set(found) <= view.aborted
            assert [first for _, first in found] == sorted(first for _, first in found)
            content = b"".join(self.disk.read(s.path, s.position, s.length) for s in slices)
            decoded = decode_records(content, offset, read_committed_aborted=found)
            records |= {at: (key, value) for at, _, key, value, _ in decoded}
            offset = max(header.next_offset for _, header in whole_batches(content))

    def check(
        self,
        found: dict[int, tuple[bytes | None, bytes | None]],
        expected: dict[int, tuple[bytes | None, bytes | None]],
    ) -> None:
        assert found == expected

    def _pair(self) -> tuple[bytes, bytes]:
        self.serial += 1
        return self.rng.choice(KEYS), b"%d" % self.serial


class CompactedTransactionalLog(TransactionalLog):
    """The same model for a compacted topic: the last committed record of each key stays."""

    configs = {
        "segment_bytes": 500,
        "index_interval_bytes": 100,
        "cleanup_policy": "compact,delete",
        "min_cleanable_dirty_ratio": 0.2,
        "delete_retention_ms": 1000,
    }

    def check(
        self,
        found: dict[int, tuple[bytes | None, bytes | None]],
        expected: dict[int, tuple[bytes | None, bytes | None]],
    ) -> None:
        assert found.items() <= expected.items()
        latest = {key: offset for offset, (key, _) in sorted(expected.items())}
        assert set(latest.values()) <= found.keys()


class UnsyncedTransactionalLog(TransactionalLog):
    """The same model with ``--sync os``: only steps are durable."""

    syncs = False


TestTransactionalLog = TransactionalLog.TestCase
TestTransactionalLog.settings = PROPERTY_SETTINGS
TestCompactedTransactionalLog = CompactedTransactionalLog.TestCase
TestCompactedTransactionalLog.settings = PROPERTY_SETTINGS
TestUnsyncedTransactionalLog = UnsyncedTransactionalLog.TestCase
TestUnsyncedTransactionalLog.settings = PROPERTY_SETTINGS
