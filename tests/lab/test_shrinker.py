"""Shrinking of failing scenarios."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.lab import runner, shrinker
from partage.lab.fault_plan import PlanStep
from partage.lab.history import BrokerDied, History, RuleViolationError
from partage.lab.options import Options
from partage.lab.runner import Verdict, draw_scenario
from partage.lab.scenario import Scenario


def test_shrink_passing_world_raises() -> None:
    with pytest.raises(shrinker.NothingToShrinkError, match="breaks no rule"):
        shrinker.shrink(3)


def break_where(
    is_broken: Callable[[Scenario], bool], monkeypatch: pytest.MonkeyPatch
) -> list[Scenario]:
    """Replace the checks by a predicate. Return the list of scenarios that will be run."""
    looked_at: list[Scenario] = []

    def live(scenario: Scenario) -> tuple[object, Verdict]:
        looked_at.append(scenario)
        rule = "no kills" if is_broken(scenario) else None
        return None, Verdict(seed=scenario.seed, rule=rule)

    monkeypatch.setattr(shrinker, "run_scenario", live)
    return looked_at


def kills(scenario: Scenario) -> list[PlanStep]:
    return [step for step in scenario.steps if step.kind == "broker_is_killed"]


def first_with_kills(is_wanted: Callable[[Options], bool]) -> Scenario:
    worlds = map(draw_scenario, range(300))
    return next(w for w in worlds if is_wanted(w.options) and kills(w) and len(w.plan) > 8)


def test_shrink_drops_irrelevant_steps_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule breaks in every world in which the broker is killed while it has members."""
    break_where(lambda scenario: bool(kills(scenario)), monkeypatch)
    seed = first_with_kills(lambda options: options.members > 1).seed
    progress: list[str] = []
    small = shrinker.shrink(seed, progress.append)
    assert [step.kind for step in small.steps] == ["broker_is_killed"]
    assert progress
    assert small.options.members == 1
    assert f"--seed-from {seed} --seeds 1 --keep " in small.rerun_command()
    assert "--set members=1" in small.rerun_command()


def test_shrink_tries_one_broker_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single broker's plan has fewer steps, so the steps get other numbers."""
    looked_at = break_where(lambda scenario: bool(kills(scenario)), monkeypatch)
    whole = first_with_kills(lambda options: options.brokers > 1)
    small = shrinker.shrink(whole.seed)
    assert looked_at[1].options.brokers == small.options.brokers == 1
    alone = whole.options.steps + whole.options.deletions + whole.options.machine_stalls
    assert len(looked_at[1].steps) == alone < len(whole.plan)
    (kill,) = small.steps
    assert kill in kills(whole)
    assert "shards" not in small.changes, "it has no effect there"
    assert draw_scenario(small.seed, small.kept, small.changes).steps == [kill]


def test_shrink_cluster_failure_keeps_two_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_broken(scenario: Scenario) -> bool:
        return bool(kills(scenario)) and scenario.options.brokers > 1

    break_where(is_broken, monkeypatch)
    small = shrinker.shrink(first_with_kills(lambda options: options.brokers == 3).seed)
    assert (small.options.brokers, small.options.shards, small.options.producers) == (2, 1, 1)
    assert len(small.steps) == 1


def test_shrink_keeps_given_steps_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = break_where(lambda scenario: bool(kills(scenario)), monkeypatch)
    seed = first_with_kills(lambda options: options.brokers > 1).seed
    given = {"brokers": "1", "members": "7"}
    plan = draw_scenario(seed, None, given).plan
    kept = tuple(at for at in range(len(plan)) if at % 2 or plan[at].kind == "broker_is_killed")
    small = shrinker.shrink(seed, kept=kept, changes=given)
    assert set(small.steps) < {plan[at] for at in kept}
    for scenario in looked_at:
        assert (scenario.options.brokers, scenario.options.members) == (1, 7)
        assert set(scenario.kept or ()) <= set(kept)
    assert "--set brokers=1 --set members=7 --set " in small.rerun_command()


def test_shrink_does_not_complicate_options(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = break_where(lambda scenario: bool(kills(scenario)), monkeypatch)
    shrinker.shrink(first_with_kills(lambda options: options.members == 1).seed)
    assert {scenario.options.members for scenario in looked_at} == {1}


@pytest.mark.parametrize("name", shrinker._SIMPLEST_VALUES)
def test_simplest_values_are_valid_options(name: str) -> None:
    for value in shrinker._SIMPLEST_VALUES[name]:
        assert getattr(draw_scenario(1, None, {name: str(value)}).options, name) == value


def test_violation_ends_world_with_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoKills:
        def __init__(self, history: History, ledger: object, settings: object) -> None:
            history.subscribe(BrokerDied, self.die)

        def die(self, entry: BrokerDied) -> None:
            raise RuleViolationError("no kills", entry.cause)

    monkeypatch.setattr("partage.lab.checkers.CHECKERS", (NoKills,))
    _, verdict = runner.run_scenario(draw_scenario(3, (), {"members": 1}))
    assert (verdict.rule, verdict.description) == (
        "no kills",
        "killed after all faults were healed",
    )
    assert verdict.command == "partage lab run --seed-from 3 --seeds 1 --keep none --set members=1"
