"""Worker processes that run worlds. They ignore Ctrl-C and end with their parent process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ProcessPool:
    """A process pool; each process starts with ``begin(*args)``.

    A block that ends with an exception terminates the processes. If a process is killed, its
    futures raise `concurrent.futures.process.BrokenProcessPool`.
    """

    def __init__(self, count: int, begin: Callable[..., None], *args: object) -> None:
        self._others = multiprocessing.active_children()
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, context, partial(_begin, begin, *args))

    def __enter__(self) -> Self:
        return self

    def submit(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Submit a call to the pool.

        SIGINT is blocked while a process may start: it inherits the mask, so that only the parent
        handles Ctrl-C.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            count = len(multiprocessing.active_children())
            future = self._pool.submit(call, *args, **named)
            # `submit` wakes the pool's thread before it starts a process. The thread would not
            # notice the death of that process until the next call wakes it.
            with suppress(BrokenProcessPool):
                while count < (count := len(multiprocessing.active_children())):
                    self._pool.submit(_wake)
            return future
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # Also for a broken pool: it can miss a process that has just started, and would wait
            # for it.
            for child in multiprocessing.active_children():
                if child not in self._others:
                    child.terminate()
        self._pool.shutdown(cancel_futures=True)


def _wake() -> None:
    """Do nothing; see `ProcessPool.submit`."""


def _begin(begin: Callable[..., None], *args: object) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin(*args)


def _end_with_parent() -> None:
    """Exit when the parent process ends. Otherwise a killed parent would leave workers behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a worker process"
    parent.join()
    os._exit(1)
