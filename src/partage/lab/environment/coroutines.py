"""Coroutines on the virtual clock: what `partage.store` is written in, run without a loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Does something once the process that it is part of goes on; at once, mostly.
WhenAwake = Callable[[Callable[[], None]], None]


class SimFuture(Generic[T]):
    """Something that is waited for by one coroutine: it comes, or it fails."""

    def __init__(self) -> None:
        self._is_done = False
        self._result: list[T] = []
        self._error: Exception | None = None
        self._done_callback: Callable[[], None] | None = None

    def set_result(self, given: T) -> None:
        """It has come."""
        if not self._is_done:
            self._result.append(given)
            self._finish()

    def set_exception(self, error: Exception) -> None:
        """It will never come."""
        if not self._is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._done_callback is not None:
            self._done_callback()

    def set_done_callback(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when it is over."""
        assert self._done_callback is None, "two wait for one moment"
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
    """A coroutine that goes on whenever what it waits for is there, and its process is awake.

    What it raises, `Exception` by kind, goes to ``failed``; without one it is raised from there.
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
        """It does nothing any more."""
        if not self.is_done:
            self.is_done = self._is_cancelled = True
            if not self._is_running:  # else it ends what it is in the middle of, and no more
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


class SimLock:
    """Lets one coroutine after the other in."""

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
