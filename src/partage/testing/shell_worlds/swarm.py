"""Run many worlds of the shells, in several processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

from partage.lab.worker_pool import ProcessPool
from partage.testing.shell_worlds.runner import ShellResult, run_shell_world
from partage.testing.shell_worlds.scenario import draw_scenario


def run_shell_seed(seed: int) -> ShellResult:
    """Run the world of a seed in this process."""
    return run_shell_world(draw_scenario(seed))


def run_shell_seeds(seeds: Sequence[int], jobs: int) -> Generator[ShellResult]:
    """Run seeds and yield their results as they complete.

    Args:
        seeds: The seeds.
        jobs: Number of processes; 1 runs the worlds in this process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: One of the processes was killed.
    """
    if jobs <= 1:
        yield from map(run_shell_seed, seeds)
        return
    waiting = iter(seeds)
    with ProcessPool(jobs, _do_nothing) as processes:
        under_way: set[Future[ShellResult]] = set()
        while True:
            under_way |= {
                processes.submit(run_shell_seed, seed)
                for seed in islice(waiting, 2 * jobs - len(under_way))
            }
            if not under_way:
                return
            done = wait(under_way, return_when=FIRST_COMPLETED).done
            under_way -= done
            yield from (each.result() for each in done)


def _do_nothing() -> None:
    """Begin a worker process."""
