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
    trials: Sequence[Trial], jobs: int, on_progress: TrialProgressCallback
) -> list[TrialResult]:
    """Run trials and return their results in order.

    Args:
        trials: The trials.
        jobs: Maximum number of processes; small groups use only this process.
        on_progress: Called with the number of a trial and its progress, from 0 to 1.
    """
    if min(jobs, len(trials)) > 1 and len(trials[0].group.members) >= _PARALLEL_MEMBERS_MIN:
        return _run_in_pool(trials, jobs, on_progress)
    return [run_trial(trial, partial(on_progress, number)) for number, trial in enumerate(trials)]


def _run_in_pool(
    trials: Sequence[Trial], jobs: int, on_progress: TrialProgressCallback
) -> list[TrialResult]:
    queue: SimpleQueue[TrialProgress] = multiprocessing.get_context("spawn").SimpleQueue()
    with ProcessPool(min(jobs, len(trials)), _begin, queue) as processes:
        futures = [
            processes.submit(_run_numbered_trial, number, trial)
            for number, trial in enumerate(trials)
        ]
        running: set[Future[TrialResult]] = set(futures)
        while running:
            running = wait(running, _POLL_INTERVAL_S).not_done
            while not queue.empty():
                on_progress(*queue.get())
        return [each.result() for each in futures]


def _begin(queue: SimpleQueue[TrialProgress]) -> None:
    global _queue
    _queue = queue
    prepare_worker()


def _run_numbered_trial(number: int, trial: Trial) -> TrialResult:
    def put_progress(share: float) -> None:
        assert _queue is not None, "the worker is initialized"
        _queue.put((number, share))

    result = run_trial(trial, put_progress)
    put_progress(1.0)
    return result
