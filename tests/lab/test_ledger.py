"""What brokers that share a log may be told, and what they may find in it."""

from __future__ import annotations

import pytest

from partage.coordinator.records import OffsetRecord, Record
from partage.lab import history as told
from partage.lab.checkers import Ledger
from partage.lab.history import Violation
from partage.store.formats import encode_record

from .stories import Story, member


def committed(offset: int) -> OffsetRecord:
    return OffsetRecord(group_id="g", topic="t", partition=0, offset=offset, commit_ms=0)


class Shared(Story):
    """A story of two brokers with one shard; ``stored`` is what became durable."""

    def __init__(self) -> None:
        super().__init__(lambda history, settings: None)
        self.stored: list[int] = []
        self.written: list[int] = []
        self.epoch = 0
        self.ledger = ledger = Ledger(self.history)
        ledger.when_stored(lambda record: self.stored.append(record.offset))
        ledger.when_written(lambda entry: self.written.extend(r.offset for r in entry.records))
        self.loads(1)

    def writes(self, broker: int, *offsets: int) -> None:
        records = tuple(map(committed, offsets))
        pairs = tuple(map(encode_record, records))
        self.tell(told.Written, broker=broker, records=records, pairs=pairs)

    def is_told(self, broker: int, count: int = 1) -> None:
        self.tell(told.Durable, broker=broker, count=count)

    def loads(self, broker: int, *offsets: int, epoch: int | None = None) -> None:
        self.epoch = self.epoch + 1 if epoch is None else epoch
        state = dict(map(encode_record, map(committed, offsets)))
        self.tell(told.Loaded, broker=broker, epoch=self.epoch, state=state)


def test_an_owner_may_learn_late_what_its_successor_has_found() -> None:
    story = Shared()
    story.writes(1, 1)
    story.writes(1, 2)
    story.loads(2, 1)
    assert story.stored == [1]
    story.is_told(1)
    with pytest.raises(Violation, match="broker 1 is told that records are durable that are not"):
        story.is_told(1)


def test_what_a_former_owner_writes_counts_for_nothing() -> None:
    story = Shared()
    story.loads(2)
    story.writes(1, 7)
    assert story.written == []
    with pytest.raises(Violation, match="broker 1 is told"):
        story.is_told(1)


def test_a_former_owner_writes_into_the_log() -> None:
    story = Shared()
    story.loads(2)
    story.writes(1, 7)
    with pytest.raises(Violation, match=r"loaded is not what was durable.*0 records in doubt"):
        story.loads(2, 7)


def test_who_gives_the_shard_up_leaves_its_writes_in_doubt() -> None:
    story = Shared()
    story.writes(1, 1)
    story.tell(told.Resigned, broker=1, shard=0)
    story.loads(1, 1)
    story.writes(1, 2)
    story.is_told(1)
    assert story.stored == [1, 2]


def test_a_successor_finds_what_nobody_wrote() -> None:
    story = Shared()
    story.writes(1, 1)
    story.is_told(1)
    with pytest.raises(Violation, match="recovery"):
        story.loads(2, 3)


def test_each_shard_has_its_owner() -> None:
    story = Shared()
    story.tell(told.Loaded, broker=2, shard=1, state={})
    story.writes(1, 1)
    story.is_told(1)
    assert story.stored == [1]


def test_who_loads_what_is_another_ones_by_now_does_not_get_it() -> None:
    story = Shared()
    story.loads(2)
    story.writes(2, 1)
    story.loads(1, epoch=1)
    story.is_told(2)
    assert story.stored == [1]
    assert [broker for broker in (1, 2) if story.ledger.has(broker, "g")] == [2]


def test_two_brokers_have_a_shard_in_one_epoch() -> None:
    story = Shared()
    with pytest.raises(Violation, match="brokers 1 and 2 both have it in epoch 1"):
        story.loads(2, epoch=1)


def test_nobody_has_what_was_given_up_until_somebody_loads_it() -> None:
    story = Shared()
    story.writes(1, 1)
    assert story.ledger.has(1, "g")
    story.tell(told.Resigned, broker=2, shard=0)
    assert story.ledger.has(1, "g")
    story.tell(told.Resigned, broker=1, shard=0)
    assert not story.ledger.has(1, "g")
    story.loads(1, 1)
    assert story.ledger.has(1, "g")


def test_nobody_has_what_another_has_taken_and_not_loaded_yet() -> None:
    story = Shared()
    story.writes(1, 1)
    story.loads(2, 1)
    story.tell(told.Taken, broker=1, shard=0, epoch=1)
    assert story.ledger.has(2, "g"), "that was before"
    story.tell(told.Taken, broker=2, shard=0, epoch=3)
    assert story.ledger.has(2, "g"), "from itself"
    story.tell(told.Taken, broker=1, shard=0, epoch=4)
    assert not story.ledger.has(2, "g")
    assert not story.ledger.has(1, "g")


def test_before_anything_was_written_there_was_no_group() -> None:
    story = Story()
    ledger = Ledger(story.history)
    mark = ledger.mark("g")
    assert ledger.since("g", mark) == [None]
    story.generation(1, member("a"))
    assert [saved and saved.generation for saved in ledger.since("g", mark)] == [None, 1, 1]
    assert [saved and saved.generation for saved in ledger.since("g", ledger.mark("g"))] == [1]


def test_what_is_lost_is_told_and_nothing_else() -> None:
    story = Shared()
    lost: list[Record] = []
    story.ledger.when_lost(lost.append)
    story.writes(1, 1)
    story.writes(1, 2)
    story.tell(told.Loaded, broker=2, shard=1, state={})
    assert lost == []
    story.loads(2, 1)
    assert lost == [committed(2)]
