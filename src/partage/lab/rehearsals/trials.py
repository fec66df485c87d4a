"""Many trials of ``what if``, in several processes where that pays."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Final

from partage.lab.processes import Processes
from partage.lab.rehearsals.whatif import Outcome, Trial, try_out
from partage.lab.swarm import settle_in

#: From so many members on another process is worth its start.
_MEMBERS_LEAST: Final = 20
_LOOK_EVERY_S: Final = 0.1

#: Told the number of a trial, and how much of it is done, from 0 to 1.
Told = Callable[[int, float], None]
Done = tuple[int, float]

_queue: SimpleQueue[Done] | None = None


def try_all(trials: Sequence[Trial], jobs: int, told: Told) -> list[Outcome]:
    """What comes of each trial, in order; from up to ``jobs`` processes if the group is large."""
    if min(jobs, len(trials)) > 1 and len(trials[0].group.members) >= _MEMBERS_LEAST:
        return _spread(trials, jobs, told)
    return [try_out(trial, partial(told, number)) for number, trial in enumerate(trials)]


def _spread(trials: Sequence[Trial], jobs: int, told: Told) -> list[Outcome]:
    queue: SimpleQueue[Done] = multiprocessing.get_context("spawn").SimpleQueue()
    with Processes(min(jobs, len(trials)), _begin, queue) as processes:
        coming = [processes.submit(_try_out, number, trial) for number, trial in enumerate(trials)]
        left: set[Future[Outcome]] = set(coming)
        while left:
            left = wait(left, _LOOK_EVERY_S).not_done
            while not queue.empty():
                told(*queue.get())
        return [each.result() for each in coming]


def _begin(queue: SimpleQueue[Done]) -> None:
    global _queue
    _queue = queue
    settle_in()


def _try_out(number: int, trial: Trial) -> Outcome:
    def told(done: float) -> None:
        assert _queue is not None, "the process has begun"
        _queue.put((number, done))

    outcome = try_out(trial, told)
    told(1.0)
    return outcome
