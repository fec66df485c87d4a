"""Run many trials, in several processes if this is faster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Final, TypeVar

from partage.lab.swarm import prepare_worker
from partage.lab.whatif.trial import ProgressCallback, Trial, TrialResult, run_trial
from partage.lab.worker_pool import ProcessPool

#: Smallest group for which a second process is worth its start.
_PARALLEL_MEMBERS_MIN: Final = 20
_POLL_INTERVAL_S: Final = 0.1

_HASH_SEED: Final = "PYTHONHASHSEED"

T = TypeVar("T")

#: Called with the number of a trial and its progress from 0 to 1.
TrialProgressCallback = Callable[[int, float], None]
TrialProgress = tuple[int, float]
TrialFunction = Callable[[Trial, ProgressCallback], TrialResult]

_queue: SimpleQueue[TrialProgress] | None = None


def run_trials(
    trials: Sequence[Trial],
    jobs: int,
    on_progress: TrialProgressCallback,
    run: TrialFunction = run_trial,
    *,
    has_fixed_hashes: bool = False,
) -> list[TrialResult]:
    """Run trials and return their results in order.

    Args:
        trials: The trials.
        jobs: Maximum number of processes; small groups use only one.
        on_progress: Called with the number of a trial and its progress, from 0 to 1.
        run: Runs one trial; a function of a module.
        has_fixed_hashes: True to run them in other processes, in which sets of strings always have
            the same order. The user's code and its libraries may depend on it.
    """
    jobs = min(jobs, len(trials)) if len(trials[0].group.members) >= _PARALLEL_MEMBERS_MIN else 1
    if has_fixed_hashes:
        with _fixed_hashes():
            return _run_in_pool(trials, jobs, on_progress, run)
    if jobs > 1:
        return _run_in_pool(trials, jobs, on_progress, run)
    return [run(trial, partial(on_progress, number)) for number, trial in enumerate(trials)]


def call_with_fixed_hashes(function: Callable[[Trial], T], trial: Trial) -> T:
    """Call a function of a module in another process, in which sets have the same order."""
    with _fixed_hashes(), ProcessPool(1, prepare_worker) as processes:
        return processes.submit(function, trial).result()


@contextmanager
def _fixed_hashes() -> Iterator[None]:
    """Let processes that start now have the same hashes of strings in each run."""
    before = os.environ.get(_HASH_SEED)
    os.environ[_HASH_SEED] = "0" if before in (None, "random") else before
    try:
        yield
    finally:
        if before is None:
            del os.environ[_HASH_SEED]
        else:
            os.environ[_HASH_SEED] = before


def _run_in_pool(
    trials: Sequence[Trial], jobs: int, on_progress: TrialProgressCallback, run: TrialFunction
) -> list[TrialResult]:
    queue: SimpleQueue[TrialProgress] = multiprocessing.get_context("spawn").SimpleQueue()
    with ProcessPool(jobs, _begin, queue) as processes:
        futures = [
            processes.submit(_run_numbered_trial, run, number, trial)
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


def _run_numbered_trial(run: TrialFunction, number: int, trial: Trial) -> TrialResult:
    def put_progress(share: float) -> None:
        assert _queue is not None, "the worker is initialized"
        _queue.put((number, share))

    result = run(trial, put_progress)
    put_progress(1.0)
    return result
