"""Wall clocks of brokers that differ and step: the simulated clocks, and rules that know them."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from partage.coordinator.records import OffsetRecord, OffsetTombstone
from partage.lab import history
from partage.lab.brokers.environment import WorldClock
from partage.lab.faults.brokers import wall_clock_steps
from partage.lab.history import RuleViolationError
from partage.lab.options import WALL_DIFFERENCE_MAX_MS
from partage.lab.runner import draw_scenario, run_scenario
from partage.lab.world import World
from partage.model.errors import ErrorCode
from partage.store.record_formats import encode_record
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

from .history_builder import HistoryBuilder
from .test_transaction_checkers import TransactionHistory

HOUR_MS = 3_600_000
WEEK_MS = 7 * 86_400_000


def test_step_changes_only_the_wall_clock() -> None:
    changes = {"brokers": 1, "wall_difference_max_ms": 0, "wall_clock_steps": 1}
    world = World(draw_scenario(1, changes=changes))
    clock = WorldClock(world, lambda: world.broker.wall_difference_ms)
    before_ms = world.now_ms
    assert (clock.now_ms(), clock.wall_ms(), clock.boot_ms()) == (before_ms,) * 3
    world.broker.step_wall_clock(-HOUR_MS)
    assert (clock.now_ms(), clock.boot_ms()) == (before_ms, before_ms)
    assert clock.wall_ms() == before_ms - HOUR_MS
    later = WorldClock(world, lambda: world.broker.wall_difference_ms)
    assert (later.now_ms(), later.boot_ms()) == (before_ms - HOUR_MS, before_ms)


def test_steps_add_up_to_a_limit() -> None:
    world = World(draw_scenario(1, changes={"brokers": 1, "wall_clock_steps": 1}))
    for _ in range(5):
        world.broker.step_wall_clock(86_400_000)
    assert world.broker.wall_difference_ms == WALL_DIFFERENCE_MAX_MS
    assert wall_clock_steps(world, Random(1))


@pytest.mark.parametrize("seed", range(3))
def test_world_without_wall_clock_faults_has_one_time(seed: int) -> None:
    changes = {"brokers": 2, "wall_difference_max_ms": 0, "wall_clock_steps": 0}
    world = World(draw_scenario(seed, changes=changes))
    assert {broker.wall_difference_ms for broker in world.brokers} == {0}
    assert "wall_clock_steps" not in {step.kind for step in world.scenario.steps}


@pytest.mark.parametrize(
    "changes",
    [
        {"brokers": 1, "transactional_producers": 2},
        {"brokers": 3, "transactional_producers": 2},
        {"brokers": 2, "consumer_members": 3},
    ],
)
def test_wrong_wall_clocks_break_no_rule(changes: dict[str, int]) -> None:
    clocks = {"wall_difference_max_ms": 86_400_000, "wall_clock_steps": 10}
    world, verdict = run_scenario(draw_scenario(60023, changes={**changes, **clocks}))
    assert verdict.rule is None, verdict.description
    assert world.faults["wall_clock_steps"] == 10


class _OffsetHistory(HistoryBuilder):
    def commit_at(self, broker_ms: int) -> None:
        partition = OffsetCommitPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        topics = [OffsetCommitTopic(name="t", partitions=[partition])]
        message = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
        self.receive_request(OFFSET_COMMIT, message, broker_ms=broker_ms)
        self.append_records(
            OffsetRecord(group_id="g", topic="t", partition=0, offset=5, commit_ms=broker_ms)
        )

    def remove_at(self, broker_ms: int) -> None:
        removed = OffsetTombstone(group_id="g", topic="t", partition=0)
        self.append(
            history.RecordsAppended,
            records=(removed,),
            pairs=(encode_record(removed),),
            broker_ms=broker_ms,
        )


def test_offsets_expire_by_the_clock_of_their_broker() -> None:
    built = _OffsetHistory()
    built.commit_at(HOUR_MS)
    built.remove_at(HOUR_MS + WEEK_MS)
    built = _OffsetHistory()
    built.commit_at(HOUR_MS)
    with pytest.raises(RuleViolationError, match="before its retention ended"):
        built.remove_at(HOUR_MS + WEEK_MS - 1)


def test_commit_must_have_the_time_of_its_request() -> None:
    built = _OffsetHistory()
    with pytest.raises(RuleViolationError, match="no request matches"):
        built.append_records(
            OffsetRecord(group_id="g", topic="t", partition=0, offset=5, commit_ms=1)
        )


def _set_clock(built: HistoryBuilder, difference_ms: int) -> None:
    built.append(history.WallClockStepped, broker=1, difference_ms=difference_ms)


def _open_and_load(before_ms: int, after_ms: int, open_ms: int) -> TransactionHistory:
    """Return a history with a transaction that was loaded with another difference of the clock."""
    built = TransactionHistory()
    _set_clock(built, before_ms)
    built.append(history.TransactionShardLoaded, broker=1)
    built.init(epoch=0)
    built.produce(ErrorCode.NONE)
    built.at_ms += 50_000
    _set_clock(built, after_ms)
    built.append(history.TransactionShardDropped, broker=1)
    built.append(history.TransactionShardLoaded, broker=1)
    built.at_ms += open_ms
    return built


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "allowed_ms"),
    [
        (0, HOUR_MS, 2_400),  # it is an hour old for the coordinator
        (HOUR_MS, 0, 62_400),  # it has just begun for the coordinator
        (HOUR_MS, HOUR_MS, 12_400),  # the clock was not changed
        (30_000, 0, 42_400),
    ],
)
def test_transaction_times_out_by_the_wall_clock_of_the_load(
    before_ms: int, after_ms: int, allowed_ms: int
) -> None:
    decide = partial(
        HistoryBuilder.append,
        kind=history.DecisionAppended,
        transactional_id="tx0",
        producer_id=1,
        epoch=1,
    )
    decide(_open_and_load(before_ms, after_ms, allowed_ms))
    with pytest.raises(RuleViolationError, match="is open"):
        decide(_open_and_load(before_ms, after_ms, allowed_ms + 500))


def test_transaction_times_out_early_only_if_clocks_differ() -> None:
    _open_and_load(0, HOUR_MS, 500).produce(ErrorCode.INVALID_PRODUCER_EPOCH)
    for after_ms in (-HOUR_MS, 0, 5_000):
        built = _open_and_load(0, after_ms, 500)
        with pytest.raises(RuleViolationError, match="was fenced with its current epoch"):
            built.produce(ErrorCode.INVALID_PRODUCER_EPOCH)


def test_clock_that_always_differs_explains_no_early_timeout() -> None:
    built = _open_and_load(HOUR_MS, HOUR_MS, 500)
    with pytest.raises(RuleViolationError, match="was fenced with its current epoch"):
        built.produce(ErrorCode.INVALID_PRODUCER_EPOCH)
