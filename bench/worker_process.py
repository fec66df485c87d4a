"""A separate process on given cores, for load generators and probers."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Coroutine, Set
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import uvloop

P = ParamSpec("P")
T = TypeVar("T")

_stopping: Event


class WorkerProcess:
    """A process that runs functions of modules; their results must be picklable.

    With ``is_urgent`` it gets a higher priority on its core, if the user is permitted to set it.
    """

    def __init__(self, core: int | Set[int], *, is_urgent: bool = False) -> None:
        cores = {core} if isinstance(core, int) else core
        context = get_context("spawn")
        self._stopping = context.Event()
        self._pool = ProcessPoolExecutor(
            1, context, initializer=_initialize, initargs=(cores, is_urgent, self._stopping)
        )

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call."""
        return self._pool.submit(work, *args, **kwargs)

    def run(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function in the process, on uvloop, and return its result."""
        return self._pool.submit(_run, work, args, kwargs).result()

    def stop(self) -> None:
        """Request that running functions end; see `is_stopping`."""
        self._stopping.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:  # its current call may never end
            for process in list(self._pool._processes.values()):
                process.kill()
        self._pool.shutdown()


def is_stopping() -> bool:
    """Return True if the process must stop; for functions that run in it."""
    return _stopping.is_set()


def _initialize(cores: Set[int], is_urgent: bool, stopping: Event) -> None:
    global _stopping
    _stopping = stopping
    os.sched_setaffinity(0, cores)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if is_urgent:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)


def _run(work: Callable[..., Coroutine[Any, Any, T]], args: Any, kwargs: Any) -> T:
    return uvloop.run(work(*args, **kwargs))
