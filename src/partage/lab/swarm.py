"""Many worlds: run, counted, and summed up."""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from partage.lab.coverage import CONSEQUENCES
from partage.lab.faults import KINDS
from partage.lab.running import Verdict, draw, live

_CHUNK = 10
#: New objects between two looks for garbage; a world makes many that stay until its end.
_LOOKED_AFTER = 5_000


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


def verdicts(seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
    """The verdicts of many seeds, as they come; from several processes with ``jobs`` above 1."""
    if jobs <= 1:
        settle_in()
        yield from map(judge, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, settle_in, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(judge, seeds, _CHUNK)
