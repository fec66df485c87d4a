"""Coroutines on the virtual clock: what `partage.store` is written in, run without a loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Does something once the process that it is part of goes on; at once, mostly.
WhenAwake = Callable[[Callable[[], None]], None]


class Moment(Generic[T]):
    """Something that is waited for by one coroutine: it comes, or it fails."""

    def __init__(self) -> None:
        self._is_over = False
        self._given: list[T] = []
        self._error: Exception | None = None
        self._then: Callable[[], None] | None = None

    def come(self, given: T) -> None:
        """It has come."""
        if not self._is_over:
            self._given.append(given)
            self._end()

    def fail(self, error: Exception) -> None:
        """It will never come."""
        if not self._is_over:
            self._error = error
            self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._then is not None:
            self._then()

    def then(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when it is over."""
        assert self._then is None, "two wait for one moment"
        self._then = call
        if self._is_over:
            call()

    def __await__(self) -> Generator[Moment[T], None, T]:
        if not self._is_over:
            yield self
        if self._error is not None:
            raise self._error
        return self._given[0]


class Task:
    """A coroutine that goes on whenever what it waits for is there, and its process is awake.

    What it raises, `Exception` by kind, goes to ``failed``; without one it is raised from there.
    """

    def __init__(
        self,
        work: Coroutine[Moment[Any], None, None],
        when_awake: WhenAwake,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.is_over = False
        self._is_running = False
        self._is_cancelled = False
        self._work = work
        self._when_awake = when_awake
        self._failed = failed
        self._go_on()

    def cancel(self) -> None:
        """It does nothing any more."""
        if not self.is_over:
            self.is_over = self._is_cancelled = True
            if not self._is_running:  # else it ends what it is in the middle of, and no more
                self._work.close()

    def _go_on(self) -> None:
        if self.is_over:
            return
        try:
            moment = self._run()
        except StopIteration:
            self.is_over = True
        except Exception as error:
            self.is_over = True
            if self._failed is None:
                raise
            self._failed(error)
        else:
            if self._is_cancelled:
                self._work.close()
            else:
                moment.then(lambda: self._when_awake(self._go_on))

    def _run(self) -> Moment[Any]:
        self._is_running = True
        try:
            return self._work.send(None)
        finally:
            self._is_running = False


class Lock:
    """Lets one coroutine after the other in."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[Moment[None]] = deque()

    async def __aenter__(self) -> None:
        if self._is_held:
            moment: Moment[None] = Moment()
            self._waiting.append(moment)
            await moment
        self._is_held = True

    async def __aexit__(self, *raised: object) -> None:
        if self._waiting:
            self._waiting.popleft().come(None)
        else:
            self._is_held = False
