"""Run many trials, in several processes if this is faster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Final

from partage.lab.swarm import prepare_worker
from partage.lab.whatif.trial import Trial, TrialResult, run_trial
from partage.lab.worker_pool import ProcessPool

#: Smallest group for which a second process is worth its start.
_PARALLEL_MEMBERS_MIN: Final = 20
_POLL_INTERVAL_S: Final = 0.1

#: Called with the number of a trial and its progress from 0 to 1.
TrialProgressCallback = Callable[[int, float], None]
TrialProgress = tuple[int, float]

_queue: SimpleQueue[TrialProgress] | None = None


def run_trials(
    trials: Sequence[Trial], jobs: int, told: TrialProgressCallback
) -> list[TrialResult]:
    """Run trials and return their results in order.

    Args:
        trials: The trials.
        jobs: Maximum number of processes; small groups use only this process.
        told: Called with the progress.
    """
    if min(jobs, len(trials)) > 1 and len(trials[0].group.members) >= _PARALLEL_MEMBERS_MIN:
        return _run_in_pool(trials, jobs, told)
    return [run_trial(trial, partial(told, number)) for number, trial in enumerate(trials)]


def _run_in_pool(
    trials: Sequence[Trial], jobs: int, told: TrialProgressCallback
) -> list[TrialResult]:
    queue: SimpleQueue[TrialProgress] = multiprocessing.get_context("spawn").SimpleQueue()
    with ProcessPool(min(jobs, len(trials)), _begin, queue) as processes:
        coming = [
            processes.submit(_run_numbered_trial, number, trial)
            for number, trial in enumerate(trials)
        ]
        left: set[Future[TrialResult]] = set(coming)
        while left:
            left = wait(left, _POLL_INTERVAL_S).not_done
            while not queue.empty():
                told(*queue.get())
        return [each.result() for each in coming]


def _begin(queue: SimpleQueue[TrialProgress]) -> None:
    global _queue
    _queue = queue
    prepare_worker()


def _run_numbered_trial(number: int, trial: Trial) -> TrialResult:
    def told(done: float) -> None:
        assert _queue is not None, "the worker is initialized"
        _queue.put((number, done))

    outcome = run_trial(trial, told)
    told(1.0)
    return outcome
