"""Runs one world: faults, recovery, small changes without faults, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from partage.testing.recipe_worlds.election_program import ElectionProgram
from partage.testing.recipe_worlds.fault_phase import RecipeFaults
from partage.testing.recipe_worlds.membership_program import MembershipProgram
from partage.testing.recipe_worlds.pool_program import PoolProgram
from partage.testing.recipe_worlds.processor_program import ProcessorProgram
from partage.testing.recipe_worlds.recipe_program import GROUP, RecipeProgram
from partage.testing.recipe_worlds.scenario import RecipeScenario, draw_scenario
from partage.testing.recipe_worlds.single_writer_program import SingleWriterProgram
from partage.testing.shell_worlds.result import ShellResult, judge_world
from partage.testing.world.world import PartageWorld

_WARM_UP_S: Final = 6.0
#: A broker that was killed or lost its session takes part again after this time.
_REJOIN_S: Final = 10.0

_PROGRAMS: Final[dict[str, Callable[[PartageWorld, RecipeScenario], RecipeProgram[Any]]]] = {
    "election": ElectionProgram,
    "pool": PoolProgram,
    "single_writer": SingleWriterProgram,
    "membership": MembershipProgram,
    "processor": ProcessorProgram,
}


def run_recipe_seed(seed: int) -> ShellResult:
    """Run the world of a seed in this process."""
    return run_recipe_world(draw_scenario(seed))


def run_recipe_world(scenario: RecipeScenario) -> ShellResult:
    """Run one world in this process."""
    settings = {
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "500" if scenario.seed % 2 else "0",
    }
    with TemporaryDirectory(prefix="partage-recipes-") as directory:
        world = PartageWorld(scenario.seed, Path(directory), settings, brokers=scenario.brokers)
        program = _PROGRAMS[scenario.recipe](world, scenario)
        rule, description = judge_world(world, lambda: _run(world, scenario, program))
    return ShellResult(
        seed=scenario.seed,
        rule=rule,
        description=description,
        records=0,
        reads=program.work_count,
        faults=[str(fault) for fault in world.plan],
        story=world.story,
    )


async def _run(world: PartageWorld, scenario: RecipeScenario, program: RecipeProgram[Any]) -> None:
    await program.prepare()
    for name, process in program.processes.items():
        world.process(process.main, name=name)
    await asyncio.sleep(_WARM_UP_S)
    await RecipeFaults(world, scenario, program.processes, GROUP).run()
    world.heal()
    for name, process in program.processes.items():
        if not world.is_running(name):
            world.restart(name)
        process.calm_down()
    await asyncio.sleep(_REJOIN_S)
    await program.check()
    for name in program.processes:
        await program.stop(name)
    await program.finish()
