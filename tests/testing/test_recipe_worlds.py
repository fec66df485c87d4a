"""Worlds of the recipes: they break no rule, and find bugs that are planted in the recipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from partage.testing import PartageWorld
from partage.testing.recipe_worlds.exclusive_work import ExclusiveWork
from partage.testing.recipe_worlds.runner import run_recipe_seed, run_recipe_world
from partage.testing.recipe_worlds.scenario import RECIPES, draw_scenario
from partage.testing.shell_worlds.result import ShellResult
from partage.testing.world.errors import InvariantError


def assert_no_violation(result: ShellResult) -> None:
    broken = f"seed {result.seed}: {result.rule}: {result.description}"
    assert result.rule is None, "\n".join([broken, *result.faults, *result.story[-40:]])
    assert result.reads > 0


@pytest.mark.parametrize("seed", range(len(RECIPES)))
def test_world_of_each_recipe_breaks_no_rule(seed: int) -> None:
    result = run_recipe_seed(seed)
    assert_no_violation(result)


@pytest.mark.slow
def test_many_worlds_break_no_rule() -> None:
    for seed in range(100, 160):
        assert_no_violation(run_recipe_seed(seed))


def test_seed_gives_the_same_story_twice() -> None:
    first, second = (run_recipe_world(draw_scenario(3, {"recipe": "pool"})) for _ in range(2))
    assert first == second


def run_two_workers(directory: Path, *, stops: bool, token: int) -> None:
    """Run two processes that both are certain that they may work."""
    world = PartageWorld(1, directory)
    rules = ExclusiveWork(world, lambda: 0.0)

    async def main() -> None:
        async def work(own: int, *, is_active: bool) -> None:
            run = rules.begin("unit", lambda: is_active, own)
            if own == 2 and stops:
                rules.end(run)

        async def work_longer() -> None:
            await work(2, is_active=not stops)
            await world.until(lambda: False)

        world.process(work_longer, name="one")
        await world.until(lambda: rules.begin_count == 1)
        world.process(lambda: work(token, is_active=True), name="two")
        await world.until(lambda: rules.begin_count == 2)

    world.run(main)


def test_two_active_processes_are_found(tmp_path) -> None:
    with pytest.raises(InvariantError, match="believers"):
        run_two_workers(tmp_path, stops=False, token=3)


def test_smaller_token_is_found(tmp_path) -> None:
    with pytest.raises(InvariantError, match="token"):
        run_two_workers(tmp_path, stops=True, token=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("a lease outlasts a rebalance that the member misses", "believers"),
        ("a term ends without waiting for its work", "stopped"),
        ("no task watches the lease of a term", "overlap"),
        ("the units of a lost worker do not wait", "delay"),
        ("units that waited are never given to others", "liveness"),
    ],
)
def test_planted_bug_is_found(bug: str, rule: str) -> None:
    command = [sys.executable, "-m", "testing.shell_mutation", bug]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
    )
    assert f"`{rule}`" in ended.stdout, ended.stdout + ended.stderr
