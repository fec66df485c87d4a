"""Ledger: confirmations and loads of brokers that share a log."""

from __future__ import annotations

import pytest

from partage.coordinator.records import OffsetRecord, Record
from partage.lab import history as told
from partage.lab.checkers import Ledger
from partage.lab.history import RuleViolationError
from partage.store.formats import encode_record

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
        self.append(told.RecordsAppended, broker=broker, records=records, pairs=pairs)

    def confirm(self, broker: int, count: int = 1) -> None:
        self.append(told.RecordsDurable, broker=broker, count=count)

    def load(self, broker: int, *offsets: int, epoch: int | None = None) -> None:
        self.epoch = self.epoch + 1 if epoch is None else epoch
        state = dict(map(encode_record, map(committed, offsets)))
        self.append(told.ShardLoaded, broker=broker, epoch=self.epoch, state=state)


def test_late_confirmation_to_former_owner_is_checked() -> None:
    story = SharedHistory()
    story.write_from(1, 1)
    story.write_from(1, 2)
    story.load(2, 1)
    assert story.stored == [1]
    story.confirm(1)
    with pytest.raises(
        RuleViolationError, match="broker 1 got a confirmation for records that are not durable"
    ):
        story.confirm(1)


def test_former_owner_appends_are_ignored() -> None:
    story = SharedHistory()
    story.load(2)
    story.write_from(1, 7)
    assert story.written == []
    with pytest.raises(RuleViolationError, match="broker 1 got a confirmation"):
        story.confirm(1)


def test_former_owner_record_in_log_is_rejected() -> None:
    story = SharedHistory()
    story.load(2)
    story.write_from(1, 7)
    with pytest.raises(
        RuleViolationError, match=r"the loaded state is not the durable state.*0 records in doubt"
    ):
        story.load(2, 7)


def test_resigned_owner_records_are_in_doubt() -> None:
    story = SharedHistory()
    story.write_from(1, 1)
    story.append(told.ShardResigned, broker=1, shard=0)
    story.load(1, 1)
    story.write_from(1, 2)
    story.confirm(1)
    assert story.stored == [1, 2]


def test_unknown_loaded_record_is_rejected() -> None:
    story = SharedHistory()
    story.write_from(1, 1)
    story.confirm(1)
    with pytest.raises(RuleViolationError, match="recovery"):
        story.load(2, 3)


def test_shards_have_separate_owners() -> None:
    story = SharedHistory()
    story.append(told.ShardLoaded, broker=2, shard=1, state={})
    story.write_from(1, 1)
    story.confirm(1)
    assert story.stored == [1]


def test_load_with_old_epoch_is_ignored() -> None:
    story = SharedHistory()
    story.load(2)
    story.write_from(2, 1)
    story.load(1, epoch=1)
    story.confirm(2)
    assert story.stored == [1]
    assert [broker for broker in (1, 2) if story.ledger.may_own(broker, "g")] == [2]


def test_two_owners_in_one_epoch_are_rejected() -> None:
    story = SharedHistory()
    with pytest.raises(RuleViolationError, match="brokers 1 and 2 both own the shard in epoch 1"):
        story.load(2, epoch=1)


def test_resigned_shard_has_no_owner_until_load() -> None:
    story = SharedHistory()
    story.write_from(1, 1)
    assert story.ledger.may_own(1, "g")
    story.append(told.ShardResigned, broker=2, shard=0)
    assert story.ledger.may_own(1, "g")
    story.append(told.ShardResigned, broker=1, shard=0)
    assert not story.ledger.may_own(1, "g")
    story.load(1, 1)
    assert story.ledger.may_own(1, "g")


def test_acquired_shard_has_no_owner_until_load() -> None:
    story = SharedHistory()
    story.write_from(1, 1)
    story.load(2, 1)
    story.append(told.ShardAcquired, broker=1, shard=0, epoch=1)
    assert story.ledger.may_own(2, "g"), "an earlier epoch"
    story.append(told.ShardAcquired, broker=2, shard=0, epoch=3)
    assert story.ledger.may_own(2, "g"), "from itself"
    story.append(told.ShardAcquired, broker=1, shard=0, epoch=4)
    assert not story.ledger.may_own(2, "g")
    assert not story.ledger.may_own(1, "g")


def test_group_versions_start_with_none() -> None:
    story = HistoryBuilder()
    ledger = Ledger(story.history)
    mark = ledger.version_count("g")
    assert ledger.versions_since("g", mark) == [None]
    story.generation(1, member("a"))
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
    story = SharedHistory()
    lost: list[Record] = []
    story.ledger.on_lost(lost.append)
    story.write_from(1, 1)
    story.write_from(1, 2)
    story.append(told.ShardLoaded, broker=2, shard=1, state={})
    assert lost == []
    story.load(2, 1)
    assert lost == [committed(2)]
