"""Worlds in which topics change: they break no rule, and each rule notices what breaks it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from partage.client.consumer import fetcher
from partage.client.consumer.errors import TopicRecreatedError
from partage.client.consumer.fetch_state_machine import FetchStateMachine, Placement
from partage.client.consumer.partition_state import TopicPartitionState
from partage.client.consumer.records import Record
from partage.client.group import offset_committer
from partage.client.group.offsets import commit_once
from partage.model.topic_partition import TopicPartition
from partage.testing.topic_worlds.runner import run_topic_world
from partage.testing.topic_worlds.scenario import draw_topic_scenario
from partage.testing.topic_worlds.topic_contents import RecordState, StoredRecord, TopicContents
from partage.testing.topic_worlds.topic_rules import MemberRun, TopicRules
from partage.testing.world_kind import WorldKind
from partage.testing.world_swarm import run_shell_seed

PLACE = TopicPartition("t", 0)


def assert_no_violation(seed: int) -> int:
    """Run a world that must break no rule; return the number of records that were read."""
    result = run_shell_seed(seed, WorldKind.TOPICS)
    broken = f"seed {seed}: {result.rule}: {result.description}"
    assert result.rule is None, "\n".join([broken, *result.faults, *result.story[-40:]])
    return result.reads


def test_worlds_break_no_rule() -> None:
    assert sum(map(assert_no_violation, (0, 1, 7))) > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1060, 15))
def test_more_worlds_break_no_rule(first: int) -> None:
    for seed in range(first, first + 15):
        assert_no_violation(seed)


def test_seed_gives_the_same_story_twice() -> None:
    first, second = (run_topic_world(draw_topic_scenario(0)) for _ in range(2))
    assert first == second


def test_scenario_of_a_seed_can_be_changed() -> None:
    assert draw_topic_scenario(5, {"faults": 9}).faults == 9


# Planted bugs: each is found by a rule.


async def commit_by_name(*arguments: object) -> Mapping[TopicPartition, int]:
    """Commit without the ids of topics."""
    return await commit_once(*arguments[:4])  # type: ignore[arg-type]  # any arguments


def commits_by_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_committer, "commit_once", commit_by_name)


def ignores_other_topics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FetchStateMachine, "_may_fetch_from_successor", lambda *_: True)


def takes_old_metadata_for_another_topic(patch: pytest.MonkeyPatch) -> None:
    def reset(machine: Any, state: TopicPartitionState, placement: Placement) -> bool:
        error = TopicRecreatedError(state.partition, state.fetch_offset)
        machine._set_position_error(state, error)
        return False

    patch.setattr(FetchStateMachine, "_may_fetch_from_successor", reset)
    patch.setattr(fetcher.Fetcher, "_forget_topics", lambda *_: None)


def shows_aborted_records(patch: pytest.MonkeyPatch) -> None:
    original = fetcher.fetch_response.FetchRules.__init__

    def begin(self: object, **options: object) -> None:
        original(self, **{**options, "read_committed": False})  # type: ignore[arg-type]  # any

    patch.setattr(fetcher.fetch_response.FetchRules, "__init__", begin)


@pytest.mark.parametrize(
    ("bug", "seeds", "rule"),
    [
        (commits_by_name, [9], "gap"),
        pytest.param(ignores_other_topics, [27], "gap", marks=pytest.mark.slow),
        (takes_old_metadata_for_another_topic, [107], "repeat"),
        (shows_aborted_records, [1], "aborted"),
    ],
)
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    seeds: list[int],
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the consumers of a world that fails
        found = {run_topic_world(draw_topic_scenario(seed)).rule for seed in seeds}
        gc.collect()
    assert rule in found


# Rules.


class Told:
    """Rules about one topic, and what they report."""

    def __init__(self, *, resets_to_end: bool = False, may_repeat: bool = False) -> None:
        self.found: list[str] = []
        self.contents = TopicContents()
        self.contents.create("t", 1)
        self.rules = TopicRules(
            self.contents,
            lambda: 0.0,
            lambda rule, text: self.found.append(rule),
            is_committed_only=True,
            may_repeat=may_repeat,
            resets_to_end=resets_to_end,
        )
        self.rules.knows_owners = True
        self.run = self.owner("reader-1")

    def owner(self, name: str) -> MemberRun:
        run = self.rules.start(name)
        self.rules.on_assigned(run, [PLACE])
        return run

    def write(self, offset: int, state: RecordState = RecordState.COMMITTED) -> bytes:
        value = self.contents.value(PLACE, offset)
        self.contents.current(PLACE).records[offset] = StoredRecord(None, value, state)
        return value

    def read(self, offset: int, value: bytes, run: MemberRun | None = None) -> None:
        record = Record("t", 0, offset, 0, 0, None, value, ())
        self.rules.on_record(run or self.run, record)


def test_correct_records_are_accepted() -> None:
    told = Told()
    values = [told.write(offset) for offset in range(3)]
    for offset, value in enumerate(values):
        told.read(offset, value)
    assert told.found == []
    assert told.rules.unread(["t"], {}) == []


def test_wrong_content_is_reported() -> None:
    told = Told()
    told.write(0)
    told.read(0, b"t/0/0/99")
    told.read(1, b"u/0/0/1")
    assert told.found == ["content", "content"]


@pytest.mark.parametrize("state", [RecordState.OPEN, RecordState.ABORTED])
def test_record_of_undecided_or_aborted_transaction_is_reported(state: RecordState) -> None:
    told = Told()
    told.read(0, told.write(0, state))
    assert told.found == ["aborted"]


def test_gap_is_reported_unless_its_records_were_deleted() -> None:
    told = Told()
    values = [told.write(offset) for offset in range(5)]
    told.read(0, values[0])
    told.contents.current(PLACE).trimmed = 2
    told.read(2, values[2])
    assert told.found == []
    told.read(4, values[4])
    assert told.found == ["gap"]


def test_first_record_after_unread_ones_is_a_gap() -> None:
    told = Told()
    told.write(0)
    told.read(1, told.write(1))
    assert told.found == ["gap"]


def test_reset_to_the_end_is_no_gap_if_the_position_was_deleted() -> None:
    told = Told(resets_to_end=True)
    values = [told.write(offset) for offset in range(6)]
    told.read(1, values[1])
    told.contents.current(PLACE).trimmed = 3
    told.read(5, values[5])
    assert told.found == []


def test_earlier_offset_and_earlier_topic_are_reported() -> None:
    told = Told(may_repeat=True)
    former = told.write(0)
    told.read(0, former)
    told.read(0, former)
    assert told.found == ["order"]
    told.contents.create("t", 1)
    told.read(0, told.write(0))
    told.read(1, former.replace(b"/0/0/0", b"/0/0/1"))
    assert told.found == ["order", "order"]


def test_second_reading_is_reported() -> None:
    told = Told()
    value = told.write(0)
    told.read(0, value)
    told.rules.on_given_up(told.run, [PLACE])
    told.rules.on_assigned(told.run, [PLACE])
    told.read(0, value)
    assert told.found == ["repeat"]


def test_record_without_ownership_is_reported() -> None:
    told = Told()
    told.rules.on_given_up(told.run, [PLACE])
    told.read(0, told.write(0))
    told.rules.on_given_up(told.run, [PLACE])
    assert told.found == ["owner", "owner"]


def test_unread_records_are_listed() -> None:
    told = Told()
    told.write(0)
    told.write(1)
    assert told.rules.unread(["t"], {}) == ["t-0 0", "t-0 1"]
    assert told.rules.unread(["t"], {PLACE: 1}) == ["t-0 1"]
    assert told.rules.unread(["u"], {}) == []


def test_compacted_record_may_be_missing() -> None:
    told = Told()
    records = told.contents.current(PLACE).records
    for offset, key in enumerate([b"a", b"b", b"a"]):
        value = told.contents.value(PLACE, offset)
        records[offset] = StoredRecord(key, value, RecordState.COMMITTED)
    assert told.rules.unread(["t"], {}) == ["t-0 1", "t-0 2"]
