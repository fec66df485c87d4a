"""Run many worlds of the production shells, in several processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

from partage.lab.worker_pool import ProcessPool
from partage.testing.recipe_worlds.runner import run_recipe_seed
from partage.testing.shell_worlds.result import ShellResult
from partage.testing.shell_worlds.runner import run_shell_world
from partage.testing.shell_worlds.scenario import draw_scenario
from partage.testing.topic_worlds.runner import run_topic_world
from partage.testing.topic_worlds.scenario import draw_topic_scenario
from partage.testing.world_kind import WorldKind


def run_shell_seed(seed: int, kind: WorldKind = WorldKind.CONSUMERS) -> ShellResult:
    """Run the world of a seed in this process."""
    match kind:
        case WorldKind.CONSUMERS:
            return run_shell_world(draw_scenario(seed))
        case WorldKind.TOPICS:
            return run_topic_world(draw_topic_scenario(seed))
        case WorldKind.RECIPES:
            return run_recipe_seed(seed)


def run_shell_seeds(
    seeds: Sequence[int], jobs: int, kind: WorldKind = WorldKind.CONSUMERS
) -> Generator[ShellResult]:
    """Run seeds and yield their results as they complete.

    Args:
        seeds: The seeds.
        jobs: Number of processes; 1 runs the worlds in this process.
        kind: The kind of the worlds.

    Raises:
        concurrent.futures.process.BrokenProcessPool: One of the processes was killed.
    """
    if jobs <= 1:
        yield from (run_shell_seed(seed, kind) for seed in seeds)
        return
    waiting = iter(seeds)
    with ProcessPool(jobs, _do_nothing) as processes:
        under_way: set[Future[ShellResult]] = set()
        while True:
            under_way |= {
                processes.submit(run_shell_seed, seed, kind)
                for seed in islice(waiting, 2 * jobs - len(under_way))
            }
            if not under_way:
                return
            done = wait(under_way, return_when=FIRST_COMPLETED).done
            under_way -= done
            yield from (each.result() for each in done)


def _do_nothing() -> None:
    """Begin a worker process."""
