"""Processes that run worlds: deaf to Ctrl-C, and gone with whoever has started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Processes:
    """So many at most, each begun by ``begin(*args)``. Who leaves by an exception waits for none.

    That one of them was killed is `concurrent.futures.process.BrokenProcessPool`.
    """

    def __init__(self, count: int, begin: Callable[..., None], *args: object) -> None:
        self._others = multiprocessing.active_children()
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, context, partial(_begin, begin, *args))

    def __enter__(self) -> Self:
        return self

    def submit(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Have one of them do something.

        Ctrl-C is for whoever has started them. What starts now inherits what is held back here.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return self._pool.submit(call, *args, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # Of a broken pool too: it may miss one that it has only just begun, and wait for it.
            for child in multiprocessing.active_children():
                if child not in self._others:
                    child.terminate()
        self._pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None], *args: object) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin(*args)


def _end_with_parent() -> None:
    """Else it would wait for ever for what a parent that was killed has to say."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "it is a process of a pool"
    parent.join()
    os._exit(1)
