"""Attempts that concurrent callers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from partage.client.errors import ClientError

T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """One attempt at a time: concurrent callers get the same result, or the same failure.

    Args:
        attempt: makes one attempt.
    """

    def __init__(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._attempt = attempt
        self._task: asyncio.Task[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """True until the attempt has ended."""
        return self._task is not None

    async def result(self) -> T:
        """Return the result of the attempt under way; start one if there is none.

        A caller that is cancelled does not end the attempt.

        Raises:
            ConnectionAbortedError: The attempt was cancelled, not this caller.
            Exception: The failure of the attempt.
        """
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(self._attempt())
            task.add_done_callback(self._on_done)
        await asyncio.wait({task})
        if task.cancelled():
            raise ConnectionAbortedError("the attempt was cancelled")
        failure = task.exception()
        if isinstance(failure, ClientError):  # all callers raise it: its traceback would grow
            raise failure.with_traceback(None)
        return task.result()

    def cancel(self) -> None:
        """End the attempt under way."""
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # all callers may have been cancelled
