"""The event loop of a test's broker, as other threads use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BrokerLoop:
    """Runs work on the broker's event loop, and waits for its result in three ways.

    Work that takes milliseconds may block any thread (`run`, `call`). Work that waits for a client
    must not block the event loop on which the client may run: `wait` refuses to, and `wait_async`
    does not block.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def is_closed(self) -> bool:
        """True if the broker has stopped."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[[], T]) -> T:
        """Run a function and return its result."""

        async def call_on_loop() -> T:
            return work()

        return self.run(call_on_loop())

    def wait(
        self, start: Callable[[], Coroutine[Any, Any, T]], *, blocking: str, awaitable: str
    ) -> T:
        """Run a coroutine that waits for a client, and return its result.

        Args:
            start: returns the coroutine.
            blocking: name of the calling method, for the error message.
            awaitable: name of the method to use instead in a coroutine.

        Raises:
            RuntimeError: an event loop runs in this thread, and would be blocked.
        """
        if _is_loop_running():
            raise RuntimeError(
                f"{blocking} would block the running event loop, and the clients that run on it; "
                f"use: await {awaitable}"
            )
        return self.run(start())

    async def wait_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that waits for a client; the caller's event loop is not blocked."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
