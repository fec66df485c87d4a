"""Worlds of the production shells: they break no rule, and each rule notices what breaks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from partage.client.consumer.records import Record
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules, ReaderRun
from partage.testing.shell_worlds.runner import ShellResult
from partage.testing.shell_worlds.scenario import draw_scenario
from partage.testing.shell_worlds.swarm import run_shell_seed, run_shell_seeds
from partage.testing.shell_worlds.wire_watch import CommitTimeline

PLACE = TopicPartition("t", 0)


def assert_no_violation(result: ShellResult) -> None:
    broken = f"seed {result.seed}: {result.rule}: {result.description}"
    assert result.rule is None, "\n".join([broken, *result.faults, *result.story[-40:]])


def test_worlds_break_no_rule() -> None:
    results = [run_shell_seed(seed) for seed in range(8)]
    for result in results:
        assert_no_violation(result)
    assert sum(result.reads for result in results) > 1_000
    assert sum(len(result.faults) for result in results) > 10


@pytest.mark.slow
def test_many_worlds_break_no_rule() -> None:
    for result in run_shell_seeds(range(8, 108), 2):
        assert_no_violation(result)


#: 41: a fetched slice was shorter than a batch header, and counted as damaged.
@pytest.mark.parametrize("seed", [41])
def test_past_seeds_break_no_rule(seed: int) -> None:
    assert_no_violation(run_shell_seed(seed))


def test_seed_gives_the_same_story_twice() -> None:
    first, second = (run_shell_seed(3) for _ in range(2))
    assert first == second


def test_scenario_of_a_seed_can_be_changed() -> None:
    scenario = draw_scenario(5, {"faults": 0, "writers": 1})
    assert (scenario.faults, scenario.writers) == (0, 1)
    assert scenario == msgspec.structs.replace(draw_scenario(5), faults=0, writers=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("a listener callback runs twice", "callbacks"),
        ("paused partitions are delivered", "owner"),
        ("the bytes of a finished fetch stay reserved", "delivery"),
        ("auto commits are one record ahead", "commit_ahead"),
        ("a replaced timer still fires", "repeat"),
        ("connections stay open after close", "close"),
    ],
)
def test_planted_bug_is_found(bug: str, rule: str) -> None:
    command = [sys.executable, "-m", "testing.shell_mutation", bug, "--seeds", "10"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
    )
    assert f"`{rule}`" in ended.stdout, ended.stdout + ended.stderr


class Checked:
    """Rules with one reader that owns a partition, and what they reported."""

    def __init__(self, *, may_repeat: bool = True) -> None:
        self.broken: list[str] = []
        self.now_s = 0.0
        self.commits = CommitTimeline()
        self.rules = DeliveryRules(
            lambda: self.now_s,
            self.commits,
            lambda rule, _: self.broken.append(rule),
            may_repeat=may_repeat,
        )
        self.rules.on_written(PLACE, 0, [b"a", b"b", b"c", b"d"])
        self.reader = self.start("reader-1")

    def start(self, name: str) -> ReaderRun:
        run = self.rules.start(name, "g")
        self.rules.on_assigned(run, [PLACE])
        return run

    def commit(self, offset: int, *, is_stored: bool = True) -> None:
        self.commits.add("g", PLACE, offset, self.now_s)(is_stored)

    def read(self, *offsets: int, value: bytes | None = None, run: ReaderRun | None = None) -> None:
        for offset in offsets:
            content = b"abcd"[offset : offset + 1] if value is None else value
            record = Record("t", 0, offset, 0, 0, None, content, ())
            self.rules.on_record(run or self.reader, record)


def test_owner_may_read_on_and_start_at_a_commit() -> None:
    checked = Checked()
    checked.read(0, 1)
    checked.commit(2)
    checked.rules.on_committed(checked.reader, {PLACE: 2})
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.now_s = 1.0
    other = checked.start("reader-2")
    checked.read(2, 3, run=other)
    checked.rules.on_seek(other, PLACE, 1)
    checked.read(1, 2, run=other)
    assert checked.broken == []
    assert not checked.rules.unread({"g": {"t"}})


def test_unanswered_commit_may_be_the_start() -> None:
    checked = Checked()
    checked.commits.add("g", PLACE, 2, 0.0)
    checked.read(2)
    assert checked.broken == []


def repeat_a_callback(checked: Checked) -> None:
    for _ in range(2):
        checked.rules.on_given_up(checked.reader, "revoked", [PLACE])


def read_after_a_loss(checked: Checked) -> None:
    checked.rules.on_given_up(checked.reader, "lost", [PLACE])
    checked.read(0)


def read_while_paused(checked: Checked) -> None:
    checked.reader.owned[PLACE].is_paused = True
    checked.read(0)


def read_beside_a_new_owner(checked: Checked) -> None:
    checked.now_s = 1.0
    checked.start("reader-2")
    checked.read(0)


def start_at_a_refused_commit(checked: Checked) -> None:
    checked.commit(1, is_stored=False)
    checked.read(1)


def lose_a_commit(checked: Checked) -> None:
    checked.read(0)
    checked.rules.on_committed(checked.reader, {PLACE: 1})


def read_twice(checked: Checked) -> None:
    checked.read(0)
    checked.rules.on_seek(checked.reader, PLACE, 0)
    checked.read(0)


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (lambda checked: checked.read(0, value=b"x"), "content"),
        (lambda checked: checked.read(0, 2), "order"),
        (lambda checked: checked.read(1), "start"),
        (start_at_a_refused_commit, "start"),
        (read_after_a_loss, "owner"),
        (read_while_paused, "owner"),
        (read_beside_a_new_owner, "owner"),
        (lambda checked: checked.rules.on_assigned(checked.reader, [PLACE]), "callbacks"),
        (repeat_a_callback, "callbacks"),
        (lose_a_commit, "commit"),
        (lambda checked: checked.rules.check_last_commits({"g": {"t"}}), "commit"),
        (read_twice, "repeat"),
    ],
)
def test_rule_names_what_breaks_it(break_it: Callable[[Checked], None], rule: str) -> None:
    checked = Checked(may_repeat=False)
    break_it(checked)
    assert checked.broken == [rule]


def test_records_that_a_group_has_not_read_are_counted() -> None:
    checked = Checked()
    checked.read(0, 1)
    assert checked.rules.unread({"g": {"t"}, "h": {"t"}, "i": {"u"}}) == {
        "g": {PLACE: 2},
        "h": {PLACE: 4},
    }
