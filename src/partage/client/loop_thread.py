"""An event loop in a thread, for code without asyncio."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final = object()

#: Time for cancelled tasks to end, and the default timeout of `LoopThread.stop`.
_ENDING_S: Final = 5.0
_STOPPING_S: Final = 10.0
#: Longest time in which abandoned threads end before the interpreter does.
_EXIT_S: Final = 2.0

log = logging.getLogger(__name__)


class CalledFromLoopError(RuntimeError):
    """Raised instead of a deadlock: a loop's own thread must not wait for that loop."""

    def __init__(self) -> None:
        super().__init__(
            "this call would wait forever for the event loop that runs it; call it from "
            "another thread, or use the asyncio API"
        )


def start_loop(
    name: str = "partage-client",
    cleanup: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> LoopThread:
    """Return a new loop thread; in a simulated world, its counterpart without a thread.

    See `LoopThread` for the arguments.
    """
    try:
        running: Any = asyncio.get_running_loop()
    except RuntimeError:
        return LoopThread(name, cleanup)
    create = getattr(running, "create_client_loop", None)
    return LoopThread(name, cleanup) if create is None else create(name, cleanup)


class LoopThread:
    """A daemon thread that runs an event loop from its creation until `stop`.

    It does not survive a fork: create a new one in the child process.

    Args:
        name: The name of the thread.
        cleanup: Closes connections and other resources before an abandoned loop stops. It must not
            refer to the object that calls `abandon`, which could then never be collected.
    """

    def __init__(
        self,
        name: str = "partage-client",
        cleanup: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._loop = _new_loop()
        self._cleanup = cleanup
        self._pid = os.getpid()
        self._gate = threading.RLock()  # Reentrant: a signal handler may run during `submit`
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _RUNNING.add(self)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work`` on the loop; cancelling the future cancels it.

        Raises:
            RuntimeError: The thread was stopped.
        """
        with self._gate:  # Work submitted after the stop would never start
            if self._is_stopped:
                work.close()
                raise RuntimeError(f"{self._thread.name} is stopped")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and return its result.

        Raises:
            CalledFromLoopError: Called in the loop's own thread, for example in a callback.
            RuntimeError: The thread was stopped.
        """
        try:
            self.check_caller()
        except CalledFromLoopError:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # For example Ctrl-C: cancel work without a waiter
            future.cancel()
            raise

    def check_caller(self) -> None:
        """Raise `CalledFromLoopError` in the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise CalledFromLoopError

    def iterate(self, source: AsyncIterator[T]) -> Generator[T]:
        """Yield the items of ``source``, and fetch the next one while the last one is used."""
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
        """Cancel all tasks, stop the loop and join its thread. A second call does nothing.

        Args:
            timeout_s: The longest time to wait. A thread that is blocked longer, by a callback or a
                host
                lookup, is abandoned; it is a daemon and ends with the process.
        """
        _RUNNING.discard(self)
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

    @property
    def is_of_this_process(self) -> bool:
        """True unless the process was forked after the thread was created."""
        return self._pid == os.getpid()

    def abandon(self) -> None:
        """Clean up and stop, without waiting. A finalizer may call it, in any thread."""
        if not self.is_of_this_process:
            return
        with self._gate, contextlib.suppress(RuntimeError):  # The loop was closed.
            if not self._is_stopped:
                self._is_stopped = True
                self._loop.call_soon_threadsafe(self._begin_cleanup)

    def _begin_cleanup(self) -> None:
        if self._cleanup is None:
            self._loop.stop()
        else:
            task = self._loop.create_task(self._cleanup())
            task.add_done_callback(self._cleaned_up)

    def _cleaned_up(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.debug("cleanup of an abandoned loop failed", exc_info=task.exception())
        self._loop.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread after `abandon`."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end_all())
            self._loop.close()


async def _end_all() -> None:
    """Cancel all tasks, also those created meanwhile; abandon tasks that do not end."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _ENDING_S
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=give_up - loop.time())
        for task in done:
            if not task.cancelled():
                task.exception()  # Retrieve the exception, so that asyncio does not log it
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
    async with turn:  # A step that was just cancelled must have left the generator
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def run_in_executor(work: Callable[[], T]) -> T:
    """Run user code, or slow code, in a thread.

    Raises:
        CancelledError: The interpreter exits, and so starts no more threads.
        Exception: As ``work``.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError as error:
        # The executor closes before the main thread counts as ended.
        is_exiting = "interpreter shutdown" in str(error)
        if threading.main_thread().is_alive() and not is_exiting:
            raise
        raise asyncio.CancelledError from None


#: The threads that were not stopped yet.
_RUNNING: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


def _end_at_exit() -> None:
    """End all threads, so that no task and no socket is destroyed while it is in use.

    Exit functions run in the reverse order of their registration. This one is registered when the
    module is imported, so those of the user can still close their consumers.
    """
    running = _running_threads()
    for thread in running:
        thread.abandon()
    give_up = time.monotonic() + _EXIT_S
    for thread in running:
        thread.join(max(0.0, give_up - time.monotonic()))


def _running_threads() -> list[LoopThread]:
    while True:
        try:
            return [thread for thread in _RUNNING if thread.is_of_this_process]
        except RuntimeError:  # Another thread added or removed one during the iteration
            continue


atexit.register(_end_at_exit)


def warn_unclosed(resource: object, name: str) -> None:
    """Emit a ResourceWarning for an object that was collected before it was closed."""
    warnings.warn(
        f"unclosed {name}: call close(), or use a with statement",
        ResourceWarning,
        stacklevel=3,
        source=resource,
    )
