"""An event loop in a thread, for code that is not asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final = object()

#: How long what was cancelled may take to end, and `LoopThread.stop` at most.
_ENDING_S: Final = 5.0
_STOPPING_S: Final = 10.0

log = logging.getLogger(__name__)


class CalledFromLoopError(RuntimeError):
    """Who waits in a loop's own thread for that loop would wait for ever."""

    def __init__(self) -> None:
        super().__init__(
            "this call would wait forever for the event loop of its own thread; call it from "
            "another thread, or use the asyncio API"
        )


class LoopThread:
    """A daemon thread that runs an event loop; it begins at once and lasts until `stop`.

    Nothing of it survives a fork: make a new one in the child.
    """

    def __init__(self, name: str = "partage-client") -> None:
        self._loop = _new_loop()
        self._gate = threading.RLock()  # a signal's handler may come in the midst of `submit`
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` on the loop; cancelling the future cancels it.

        Raises:
            RuntimeError: the thread was stopped.
        """
        with self._gate:  # what comes after the end would never be begun
            if self._is_stopped:
                work.close()
                raise RuntimeError(f"{self._thread.name} is stopped")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for what it returns or raises.

        Raises:
            CalledFromLoopError: in the loop's own thread, as in a callback.
            RuntimeError: the thread was stopped.
        """
        try:
            self.check_caller()
        except CalledFromLoopError:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # such as Ctrl-C here: what nobody waits for is not done
            future.cancel()
            raise

    def check_caller(self) -> None:
        """Raises CalledFromLoopError in the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise CalledFromLoopError

    def iterate(self, source: AsyncIterator[T]) -> Generator[T]:
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

    def stop(self, timeout_s: float = _STOPPING_S) -> None:
        """Cancel what runs, end the loop and its thread; again does nothing.

        It takes ``timeout_s`` at most: a thread that is not done by then, because a callback blocks
        it or the operating system is still looking for a host, is left behind. It is a daemon, and
        ends no later than the process.
        """
        with self._gate:
            is_first, self._is_stopped = not self._is_stopped, True
            if is_first:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is self._thread:
            return
        self._thread.join(timeout_s)
        if is_first and self._thread.is_alive():
            log.warning(
                "thread %s did not stop within %g s and was abandoned", self._thread.name, timeout_s
            )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end_all())
            self._loop.close()


async def _end_all() -> None:
    """Cancel everything, what comes of that too; some may refuse to end, and are left."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _ENDING_S
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=give_up - loop.time())
        for task in done:
            if not task.cancelled():
                task.exception()  # what nobody asked for is not complained of
        if pending:
            log.warning(
                "tasks did not end after cancellation: %s",
                ", ".join(sorted(str(t.get_coro()) for t in pending)),
            )
            break
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.1, give_up - loop.time())):
            await loop.shutdown_asyncgens()


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
