"""Coroutines on the virtual clock: they run the code of `partage.store` without an event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Runs a call now, or after the pause if the process is paused.
WhenAwake = Callable[[Callable[[], None]], None]


class SimFuture(Generic[T]):
    """A future for one waiting coroutine."""

    def __init__(self) -> None:
        self._is_done = False
        self._result: list[T] = []
        self._error: Exception | None = None
        self._done_callback: Callable[[], None] | None = None

    def set_result(self, given: T) -> None:
        """Set the result, unless the future is done."""
        if not self._is_done:
            self._result.append(given)
            self._finish()

    def set_exception(self, error: Exception) -> None:
        """Set the exception, unless the future is done."""
        if not self._is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._done_callback is not None:
            self._done_callback()

    def set_done_callback(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the future is done, at once if it already is."""
        assert self._done_callback is None, "only one coroutine may wait for a future"
        self._done_callback = call
        if self._is_done:
            call()

    def __await__(self) -> Generator[SimFuture[T], None, T]:
        if not self._is_done:
            yield self
        if self._error is not None:
            raise self._error
        return self._result[0]


class SimTask:
    """A coroutine that continues when its future is done and its process is not paused.

    An `Exception` that it raises goes to ``failed``; without one it propagates.
    """

    def __init__(
        self,
        work: Coroutine[SimFuture[Any], None, None],
        when_awake: WhenAwake,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.is_done = False
        self._is_running = False
        self._is_cancelled = False
        self._work = work
        self._when_awake = when_awake
        self._failed = failed
        self._step()

    def cancel(self) -> None:
        """Cancel the task."""
        if not self.is_done:
            self.is_done = self._is_cancelled = True
            if not self._is_running:  # otherwise it stops at its next await
                self._work.close()

    def _step(self) -> None:
        if self.is_done:
            return
        try:
            moment = self._run()
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self.is_done = True
            if self._failed is None:
                raise
            self._failed(error)
        else:
            if self._is_cancelled:
                self._work.close()
            else:
                moment.set_done_callback(lambda: self._when_awake(self._step))

    def _run(self) -> SimFuture[Any]:
        self._is_running = True
        try:
            return self._work.send(None)
        finally:
            self._is_running = False


class SimTaskSet:
    """The unfinished tasks of a process.

    The set refers to them also if nothing else does. Otherwise the garbage collector of the
    interpreter may end a coroutine while it ends one that this coroutine awaits, which is an error.
    """

    def __init__(self) -> None:
        self._tasks: list[SimTask] = []

    def spawn(self, work: Coroutine[SimFuture[Any], None, None], when_awake: WhenAwake) -> None:
        """Start a task."""
        task = SimTask(work, when_awake)
        self._tasks = [each for each in (*self._tasks, task) if not each.is_done]


class SimLock:
    """A mutual exclusion lock for coroutines."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[SimFuture[None]] = deque()

    async def __aenter__(self) -> None:
        if self._is_held:
            moment: SimFuture[None] = SimFuture()
            self._waiting.append(moment)
            await moment
        self._is_held = True

    async def __aexit__(self, *raised: object) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._is_held = False
