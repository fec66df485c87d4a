"""Many worlds: run, counted, and summed up."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, Final

import msgspec

from partage.lab.coverage import CONSEQUENCES
from partage.lab.faults import KINDS
from partage.lab.processes import Processes
from partage.lab.running import Verdict, draw, live

_CHUNK: Final = 10
#: So many worlds to a process, then others are started: what may have leaked goes with the old
#: ones. The executor's own ``max_tasks_per_child`` can deadlock (CPython's issue 115634).
_WORLDS_A_PROCESS: Final = 2_000
#: New objects between two looks for garbage; a world makes many that stay until its end.
_LOOKED_AFTER: Final = 5_000


class ProcessKilled(RuntimeError):
    """A process that ran worlds was killed; ``seeds`` are those that were under way, in order."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__(f"a process was killed while seeds {seeds} were under way")
        self.seeds = seeds


class Summary(msgspec.Struct, kw_only=True):
    """What came of many worlds; counted as in `Verdict`."""

    worlds: int = 0
    events: int = 0
    requests: int = 0
    generations: int = 0
    failures: list[Verdict] = []
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    met: Counter[str] = msgspec.field(default_factory=Counter)
    met_by_consumers: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """One more world."""
        self.worlds += 1
        self.events += verdict.events
        self.requests += verdict.requests
        self.generations += verdict.generations
        self.faults.update(verdict.faults)
        self.met.update(verdict.met)
        self.met_by_consumers.update(verdict.met_by_consumers)
        if verdict.rule is not None:
            self.failures.append(verdict)

    def never(self) -> list[str]:
        """The faults that never struck, and what comes of them and never came."""
        wanted = (*KINDS.all(), *CONSEQUENCES)
        return [kind for kind in wanted if not self.faults[kind]]


def settle_in() -> None:
    """Make this process ready for many worlds: what it has by now is never looked at as garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_LOOKED_AFTER, 20, 50)


def judge(
    seed: int, kept: Sequence[int] | None = None, changes: dict[str, Any] | None = None
) -> Verdict:
    """Live through the world of a seed, and no more than its verdict."""
    _, verdict = live(draw(seed, None if kept is None else tuple(kept), changes))
    return verdict


def verdicts(seeds: Sequence[int], jobs: int) -> Generator[Verdict]:
    """The verdicts of many seeds, as they come; from several processes with ``jobs`` above 1.

    Raises:
        ProcessKilled: one of the processes is no more.
    """
    if jobs <= 1:
        settle_in()
        yield from map(judge, seeds)
        return
    for some in _parts(seeds, jobs * _WORLDS_A_PROCESS):
        yield from _spread(some, jobs)


def _spread(seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
    waiting = _parts(seeds, _CHUNK)
    under_way: dict[Future[list[Verdict]], Sequence[int]] = {}
    try:
        with Processes(jobs, settle_in) as processes:
            for some in islice(waiting, jobs + 1):
                under_way[processes.submit(_judge_all, some)] = some
            while under_way:
                done = wait(under_way, return_when=FIRST_COMPLETED).done
                for each in sorted(done, key=lambda one: one.exception() is not None):
                    yield from each.result()
                    del under_way[each]
                    for some in islice(waiting, 1):
                        under_way[processes.submit(_judge_all, some)] = some
    except BrokenProcessPool:
        raise ProcessKilled(sorted(chain.from_iterable(under_way.values()))) from None


def _parts(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (seeds[at : at + size] for at in range(0, len(seeds), size))


def _judge_all(seeds: Sequence[int]) -> list[Verdict]:
    return [judge(seed) for seed in seeds]
