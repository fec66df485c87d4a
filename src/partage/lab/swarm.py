"""Run many worlds and sum up their verdicts."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, Final

import msgspec

from partage.lab.coverage import FAULT_CONSEQUENCES
from partage.lab.faults import KINDS
from partage.lab.runner import Verdict, draw_scenario, run_scenario
from partage.lab.worker_pool import ProcessPool

_CHUNK: Final = 10
#: Worlds for each process before the pool is replaced, which frees leaked memory. The executor's
#: ``max_tasks_per_child`` can deadlock (CPython issue 115634).
_WORLDS_PER_PROCESS: Final = 2_000
#: Allocations between two collections of the youngest generation. A world creates many objects that
#: live until its end.
_GC_THRESHOLD: Final = 5_000


class WorkerKilledError(RuntimeError):
    """Raised when a worker process was killed; ``seeds`` are the seeds in progress, in order."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__(f"a worker process was killed while it ran seeds {seeds}")
        self.seeds = seeds


class Summary(msgspec.Struct, kw_only=True):
    """Sum of the verdicts of many worlds; the counts are those of `Verdict`."""

    worlds: int = 0
    events: int = 0
    requests: int = 0
    generations: int = 0
    failures: list[Verdict] = []
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    group_events: Counter[str] = msgspec.field(default_factory=Counter)
    consumer_events: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Add the verdict of one world."""
        self.worlds += 1
        self.events += verdict.events
        self.requests += verdict.requests
        self.generations += verdict.generations
        self.faults.update(verdict.faults)
        self.group_events.update(verdict.group_events)
        self.consumer_events.update(verdict.consumer_events)
        if verdict.rule is not None:
            self.failures.append(verdict)

    def missing_faults(self) -> list[str]:
        """Return the faults that never took effect and the consequences of faults that never
        occurred.
        """
        wanted = (*KINDS.all(), *FAULT_CONSEQUENCES)
        return [kind for kind in wanted if not self.faults[kind]]


def prepare_worker() -> None:
    """Prepare this process for many worlds: exclude existing objects from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 50)


def run_seed(
    seed: int, kept: Sequence[int] | None = None, changes: dict[str, Any] | None = None
) -> Verdict:
    """Run the world of a seed and return only its verdict."""
    _, verdict = run_scenario(draw_scenario(seed, None if kept is None else tuple(kept), changes))
    return verdict


def run_seeds(
    seeds: Sequence[int], jobs: int, changes: dict[str, Any] | None = None
) -> Generator[Verdict]:
    """Run seeds and yield their verdicts as they complete.

    Args:
        seeds: The seeds.
        jobs: Number of processes; 1 runs the worlds in this process.
        changes: Options to set in all worlds, by name; None sets none.

    Raises:
        WorkerKilledError: One of the processes was killed.
    """
    if jobs <= 1:
        prepare_worker()
        yield from (run_seed(seed, changes=changes) for seed in seeds)
        return
    for some in _chunks(seeds, jobs * _WORLDS_PER_PROCESS):
        yield from _run_in_pool(some, jobs, changes)


def _run_in_pool(
    seeds: Sequence[int], jobs: int, changes: dict[str, Any] | None
) -> Iterator[Verdict]:
    waiting = _chunks(seeds, _CHUNK)
    under_way: dict[Future[list[Verdict]], Sequence[int]] = {}
    try:
        with ProcessPool(jobs, prepare_worker) as processes:
            for some in islice(waiting, jobs + 1):
                under_way[processes.submit(_run_chunk, some, changes)] = some
            while under_way:
                done = wait(under_way, return_when=FIRST_COMPLETED).done
                for each in sorted(done, key=lambda one: one.exception() is not None):
                    yield from each.result()
                    del under_way[each]
                    for some in islice(waiting, 1):
                        under_way[processes.submit(_run_chunk, some, changes)] = some
    except BrokenProcessPool:
        raise WorkerKilledError(sorted(chain.from_iterable(under_way.values()))) from None


def _chunks(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (seeds[at : at + size] for at in range(0, len(seeds), size))


def _run_chunk(seeds: Sequence[int], changes: dict[str, Any] | None) -> list[Verdict]:
    return [run_seed(seed, changes=changes) for seed in seeds]
