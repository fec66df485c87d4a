"""Ledger: confirmations and loads of brokers that share a log."""

from __future__ import annotations

import pytest

from partage.coordinator.records import OffsetRecord, Record
from partage.lab import history
from partage.lab.checkers import Ledger
from partage.lab.history import RuleViolationError
from partage.store.record_formats import encode_record

from .history_builder import HistoryBuilder, member


def committed(offset: int) -> OffsetRecord:
    return OffsetRecord(group_id="g", topic="t", partition=0, offset=offset, commit_ms=0)


class SharedHistory(HistoryBuilder):
    """A history of two brokers with one shard; ``stored`` has the durable offsets."""

    def __init__(self) -> None:
        super().__init__(lambda history, settings: None)
        self.stored: list[int] = []
        self.written: list[int] = []
        self.epoch = 0
        self.ledger = ledger = Ledger(self.history)
        ledger.on_durable(lambda record: self.stored.append(record.offset))
        ledger.on_appended(lambda entry: self.written.extend(r.offset for r in entry.records))
        self.load(1)

    def write_from(self, broker: int, *offsets: int) -> None:
        records = tuple(map(committed, offsets))
        pairs = tuple(map(encode_record, records))
        self.append(history.RecordsAppended, broker=broker, records=records, pairs=pairs)

    def confirm(self, broker: int, count: int = 1) -> None:
        self.append(history.RecordsDurable, broker=broker, count=count)

    def load(self, broker: int, *offsets: int, epoch: int | None = None) -> None:
        self.epoch = self.epoch + 1 if epoch is None else epoch
        state = dict(map(encode_record, map(committed, offsets)))
        self.append(history.ShardLoaded, broker=broker, epoch=self.epoch, state=state)


def test_late_confirmation_to_former_owner_is_checked() -> None:
    builder = SharedHistory()
    builder.write_from(1, 1)
    builder.write_from(1, 2)
    builder.load(2, 1)
    assert builder.stored == [1]
    builder.confirm(1)
    with pytest.raises(
        RuleViolationError, match="broker 1 got a confirmation for records that are not durable"
    ):
        builder.confirm(1)


def test_former_owner_appends_are_ignored() -> None:
    builder = SharedHistory()
    builder.load(2)
    builder.write_from(1, 7)
    assert builder.written == []
    with pytest.raises(RuleViolationError, match="broker 1 got a confirmation"):
        builder.confirm(1)


def test_former_owner_record_in_log_is_rejected() -> None:
    builder = SharedHistory()
    builder.load(2)
    builder.write_from(1, 7)
    with pytest.raises(
        RuleViolationError, match=r"the loaded state is not the durable state.*0 records in doubt"
    ):
        builder.load(2, 7)


def test_resigned_owner_records_are_in_doubt() -> None:
    builder = SharedHistory()
    builder.write_from(1, 1)
    builder.append(history.ShardResigned, broker=1, shard=0)
    builder.load(1, 1)
    builder.write_from(1, 2)
    builder.confirm(1)
    assert builder.stored == [1, 2]


def test_unknown_loaded_record_is_rejected() -> None:
    builder = SharedHistory()
    builder.write_from(1, 1)
    builder.confirm(1)
    with pytest.raises(RuleViolationError, match="recovery"):
        builder.load(2, 3)


def test_shards_have_separate_owners() -> None:
    builder = SharedHistory()
    builder.append(history.ShardLoaded, broker=2, shard=1, state={})
    builder.write_from(1, 1)
    builder.confirm(1)
    assert builder.stored == [1]


def test_load_with_old_epoch_is_ignored() -> None:
    builder = SharedHistory()
    builder.load(2)
    builder.write_from(2, 1)
    builder.load(1, epoch=1)
    builder.confirm(2)
    assert builder.stored == [1]
    assert [broker for broker in (1, 2) if builder.ledger.may_own(broker, "g")] == [2]


def test_two_owners_in_one_epoch_are_rejected() -> None:
    builder = SharedHistory()
    with pytest.raises(RuleViolationError, match="brokers 1 and 2 both own the shard in epoch 1"):
        builder.load(2, epoch=1)


def test_resigned_shard_has_no_owner_until_load() -> None:
    builder = SharedHistory()
    builder.write_from(1, 1)
    assert builder.ledger.may_own(1, "g")
    builder.append(history.ShardResigned, broker=2, shard=0)
    assert builder.ledger.may_own(1, "g")
    builder.append(history.ShardResigned, broker=1, shard=0)
    assert not builder.ledger.may_own(1, "g")
    builder.load(1, 1)
    assert builder.ledger.may_own(1, "g")


def test_acquired_shard_has_no_owner_until_load() -> None:
    builder = SharedHistory()
    builder.write_from(1, 1)
    builder.load(2, 1)
    builder.append(history.ShardAcquired, broker=1, shard=0, epoch=1)
    assert builder.ledger.may_own(2, "g"), "an earlier epoch"
    builder.append(history.ShardAcquired, broker=2, shard=0, epoch=3)
    assert builder.ledger.may_own(2, "g"), "from itself"
    builder.append(history.ShardAcquired, broker=1, shard=0, epoch=4)
    assert not builder.ledger.may_own(2, "g")
    assert not builder.ledger.may_own(1, "g")


def test_group_versions_start_with_none() -> None:
    builder = HistoryBuilder()
    ledger = Ledger(builder.history)
    mark = ledger.version_count("g")
    assert ledger.versions_since("g", mark) == [None]
    builder.generation(1, member("a"))
    assert [saved and saved.generation for saved in ledger.versions_since("g", mark)] == [
        None,
        1,
        1,
    ]
    assert [
        saved and saved.generation
        for saved in ledger.versions_since("g", ledger.version_count("g"))
    ] == [1]


def test_lost_records_are_reported_once() -> None:
    builder = SharedHistory()
    lost: list[Record] = []
    builder.ledger.on_lost(lost.append)
    builder.write_from(1, 1)
    builder.write_from(1, 2)
    builder.append(history.ShardLoaded, broker=2, shard=1, state={})
    assert lost == []
    builder.load(2, 1)
    assert lost == [committed(2)]
