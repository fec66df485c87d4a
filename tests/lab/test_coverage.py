"""Coverage: counts are correct, and worlds reach the possible states."""

from __future__ import annotations

from collections import Counter

import pytest

from partage.coordinator.events import (
    DeleteGroup,
    DescribeGroup,
    ListGroups,
    Ticket,
    TimerFired,
    TopicsDeleted,
)
from partage.coordinator.group import Group
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.coordinator.timers import ExpiryTimer, JoinTimer
from partage.lab.coverage import (
    ELSEWHERE,
    FAULT_CONSEQUENCES,
    LOADING,
    POSSIBLE_STATES,
    group_coverage_keys,
    uncovered_events,
)
from partage.lab.faults import DEFERRED, KINDS
from partage.lab.runner import draw_scenario, run_scenario
from partage.model.settings import GroupSettings

TICKET = Ticket(object())


def test_group_event_counts_for_its_group() -> None:
    shard = Shard(GroupSettings(), lambda subscription: frozenset())
    described = DescribeGroup(at_ms=0, reply_to=TICKET, group_id="g")
    assert list(group_coverage_keys(shard, LOADING, described)) == ["none DescribeGroup"]
    assert list(group_coverage_keys(None, ELSEWHERE, described)) == ["elsewhere DescribeGroup"]
    fired = TimerFired(at_ms=0, key=JoinTimer("g"))
    assert list(group_coverage_keys(shard, LOADING, fired)) == ["none JoinTimer"]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (ListGroups(at_ms=0, reply_to=TICKET), "ListGroups"),
        (TopicsDeleted(at_ms=0, topics=frozenset({"t"})), "TopicsDeleted"),
        (TimerFired(at_ms=0, key=ExpiryTimer()), "ExpiryTimer"),
    ],
)
def test_shard_event_counts_for_each_group(event: object, name: str) -> None:
    shard = Shard(GroupSettings(), lambda subscription: frozenset())
    assert list(group_coverage_keys(shard, LOADING, event)) == [f"none {name}"]
    states = [GroupState.EMPTY, GroupState.STABLE, GroupState.STABLE]
    for number, state in enumerate(states):
        group = shard.groups[f"g{number}"] = Group(f"g{number}")
        group.state = state
    assert list(group_coverage_keys(shard, LOADING, event)) == [
        f"{state} {name}" for state in states
    ]


def test_uncovered_events_lists_missing_states() -> None:
    everything = {
        f"{state} {event}" for event, states in POSSIBLE_STATES.items() for state in states
    }
    assert uncovered_events(everything) == []
    name = DeleteGroup.__name__
    missing = {f"Stable {name}", f"{LOADING} {name}", "Stable SessionTimer"}
    assert uncovered_events(everything - missing) == [
        (name, ["Stable", LOADING]),
        ("SessionTimer", ["Stable"]),
    ]


@pytest.mark.slow
def test_worlds_cover_possible_states_and_faults() -> None:
    met: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    ordered: Counter[str] = Counter()
    for seed in range(60, 100):
        world, verdict = run_scenario(draw_scenario(seed, changes={"brokers": 1 + seed % 3}))
        assert verdict.rule is None, verdict.command
        met.update(verdict.group_events)
        faults.update(verdict.faults)
        ordered.update(step.kind for step in world.scenario.steps)
        traps = {kind for kind in DEFERRED if kind.startswith("dies_")}
        assert sum(verdict.faults.get(kind, 0) for kind in traps) <= sum(
            step.kind in traps for step in world.scenario.steps
        )
    assert met.keys() <= {
        f"{state} {event}" for event, states in POSSIBLE_STATES.items() for state in states
    }
    missing = sum(len(states) for _, states in uncovered_events(met))
    assert missing < 30, uncovered_events(met)
    assert faults.keys() <= {
        *(*KINDS.all(), *FAULT_CONSEQUENCES),
        "static_group_needs_rebalance",
    }
    assert (
        0
        < faults["dies_before_the_generation_is_stored"]
        < ordered["dies_before_the_generation_is_stored"]
    ), "not every crash point is reached"
