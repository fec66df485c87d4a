"""The loop of a client in a simulated world, in place of `partage.client.loop_thread.LoopThread`.

Outside of worlds, a client runs its coroutines on a separate thread. Here they are tasks of the
world's loop. A caller that blocks for a result lets the world go on: a function of an executor
waits in its greenlet, and a coroutine runs turns of the loop itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from greenlet import getcurrent  # type: ignore[import-untyped]  # it has no stubs

from partage.testing.world.virtual_loop import VirtualLoop

T = TypeVar("T")


class WorldClientLoop:
    """Runs the coroutines of a client; see `LoopThread` for the methods."""

    is_of_this_process = True

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        cleanup: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        self._loop = loop
        self._name = name
        self._cleanup = cleanup
        self._is_stopped = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work``; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop was stopped.
        """
        if self._is_stopped:
            work.close()
            raise RuntimeError(f"{self._name} is stopped")
        future: Future[T] = _LoopResult(self._loop)
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._on_done(done, future))
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def _on_done(self, task: asyncio.Task[T], future: Future[T]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            future.cancel()
        elif not future.cancelled():
            error = task.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` and return its result."""
        return self.submit(work).result()

    def check_caller(self) -> None:
        """Do nothing: every caller may wait."""

    def stop(self, timeout_s: float = 0) -> None:
        """Cancel all tasks of the client."""
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()

    def abandon(self) -> None:
        """Stop."""
        self.stop()

    def join(self, timeout_s: float) -> None:
        """Do nothing."""


class _NoLock:
    """The condition of a result in a world, which has one thread."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def notify_all(self) -> None:
        """Do nothing: `_LoopResult` waits with the loop."""


_NO_LOCK: Final = _NoLock()


class _LoopResult(Future[T]):
    """A result that lets the world go on while a caller waits for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._condition = _NO_LOCK  # type: ignore[assignment]  # in place of a `threading.Condition`

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, at most ``timeout`` virtual seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the exception, at most ``timeout`` virtual seconds."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        if getcurrent().parent is None:
            self._run_turns(timeout)
        else:
            self._switch(timeout)
        if not self.done():
            raise FutureTimeoutError

    def _run_turns(self, timeout: float | None) -> None:
        """Wait in a coroutine, which blocks the loop: run its turns here."""
        loop = self._loop
        timer = None if timeout is None else loop.call_later(timeout, lambda: None)
        limit_s = None if timeout is None else loop.time() + timeout
        while not self.done() and (limit_s is None or loop.time() < limit_s):
            loop.run_turn()
        if timer is not None:
            timer.cancel()

    def _switch(self, timeout: float | None) -> None:
        """Wait in a function of an executor: let the loop continue."""
        waiter = getcurrent()
        woken = False

        def wake() -> None:
            nonlocal woken
            if not woken:
                woken = True
                waiter.switch()

        timer = None if timeout is None else self._loop.call_later(timeout, wake)
        self.add_done_callback(lambda _: self._loop.call_soon(wake))
        parent = waiter.parent
        assert parent is not None, "the loop runs in the main greenlet"
        parent.switch()
        if timer is not None:
            timer.cancel()
