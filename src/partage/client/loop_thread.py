"""An event loop in a thread, for code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final = object()


class LoopThread:
    """A daemon thread that runs an event loop; it begins at once and lasts until `stop`.

    Nothing of it survives a fork: make a new one in the child.
    """

    def __init__(self, name: str = "partage-client") -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for what it returns or raises."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # such as Ctrl-C here: what nobody waits for is not done
            future.cancel()
            raise

    def pulled(self, source: AsyncIterator[T]) -> Generator[T]:
        """The items of ``source``, the next one being fetched while the last one is used."""
        turn = asyncio.Lock()
        ahead = self.submit(_next(source, turn))
        try:
            while (item := ahead.result()) is not _END:
                ahead = self.submit(_next(source, turn))
                yield item
        finally:
            ahead.cancel()
            self.call(_close(source, turn))

    def stop(self) -> None:
        """Cancel what runs, end the loop and its thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


async def _next(source: AsyncIterator[T], turn: asyncio.Lock) -> Any:
    async with turn:
        return await anext(source, _END)


async def _close(source: AsyncIterator[Any], turn: asyncio.Lock) -> None:
    async with turn:  # a step that was cancelled a moment ago must be out of the generator
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
