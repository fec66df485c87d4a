"""The hand-written half of the blocking recipes: their event loop, and threads for their work."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from partage.client.group.errors import NotAMemberError
from partage.client.loop_thread import LoopThread, warn_unclosed
from partage.client.membership import Membership
from partage.model.arguments import (
    InvalidArgumentError,
    check_function,
    check_optional_timeout_ms,
)
from partage.recipes.election import Term as AsyncTerm
from partage.recipes.errors import CalledFromWorkError

T = TypeVar("T")

_THREAD_NAME: Final = "partage-recipe"


class _AsyncRecipe(Protocol):
    """A recipe of `partage.recipes` that has a membership."""

    @property
    def membership(self) -> Membership:
        """The underlying membership."""

    async def close(self) -> None:
        """Stop the work and leave the group."""


R = TypeVar("R", bound=_AsyncRecipe)


class Term:
    """A period in which this process is active.

    ``token`` is a fencing token: it is greater than the token of every earlier term in all
    processes. Send it with every write, and let the storage reject a smaller token than it has
    seen. Any thread may use a term.
    """

    def __init__(self, term: AsyncTerm, runner: WorkRunner) -> None:
        self._term = term
        self._runner = runner

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._term.token

    @property
    def is_active(self) -> bool:
        """True if this process is certainly active, by the clock, even right after a suspension."""
        return self._term.is_active

    @property
    def has_ended(self) -> bool:
        """True if the term has ended."""
        return self._term.has_ended

    def wait_ended(self, timeout_ms: int | None = None) -> bool:
        """Wait until the term has ended; return False if it has not after ``timeout_ms``."""
        check_optional_timeout_ms(timeout_ms)
        thread = self._runner.thread
        if self._term.has_ended or thread is None:
            return True
        ended = thread.submit(self._term.wait_ended())
        try:
            ended.result(None if timeout_ms is None else timeout_ms / 1000)
        except TimeoutError:
            ended.cancel()
            return False
        except CancelledError:  # The recipe was closed
            return True
        return True


class WorkRunner:
    """Runs blocking work in threads, one for each call, as an asyncio recipe calls it.

    A thread cannot be cancelled. A cancelled call waits until the work returns, so a recipe never
    gives work to another process that still runs here.

    Attributes:
        thread: The thread with the event loop of the recipe; None before it starts.
    """

    def __init__(self) -> None:
        self.thread: LoopThread | None = None
        self._caller = threading.local()

    def check_caller(self) -> None:
        """Raise `CalledFromWorkError` in a thread that runs work of this recipe."""
        if getattr(self._caller, "is_work", False):
            raise CalledFromWorkError

    def term_work(
        self, work: Callable[[Term], object] | None
    ) -> Callable[[AsyncTerm], Awaitable[object]] | None:
        """Return the coroutine function that runs the work of an election."""
        if work is None:
            return None
        check_blocking("work", work, "a Term")

        async def run(term: AsyncTerm) -> object:
            return await self._run("term", lambda: work(Term(term, self)))

        return run

    def write_work(
        self, write: Callable[[Term, Any], object]
    ) -> Callable[[AsyncTerm, Any], Awaitable[object]]:
        """Return the coroutine function that runs the work of a single writer."""
        check_blocking("write", write, "a Term and a producer")

        async def run(term: AsyncTerm, producer: Any) -> object:
            return await self._run("term", lambda: write(Term(term, self), producer))

        return run

    def unit_work(
        self, work: Callable[[str, threading.Event], object]
    ) -> Callable[[str], Awaitable[object]]:
        """Return the coroutine function that runs the work of a worker pool."""
        check_blocking("work", work, "the name of a unit and a threading.Event")

        async def run(unit: str) -> object:
            must_stop = threading.Event()
            return await self._run(f"unit {unit}", lambda: work(unit, must_stop), must_stop.set)

        return run

    def term(self, term: AsyncTerm) -> Term:
        """Return the blocking form of a term."""
        return Term(term, self)

    def optional_term(self, term: AsyncTerm | None) -> Term | None:
        """Return the blocking form of a term, if there is one."""
        return None if term is None else Term(term, self)

    async def _run(
        self, name: str, work: Callable[[], object], on_cancel: Callable[[], None] | None = None
    ) -> object:
        ended: Future[object] = Future()

        def call() -> None:
            self._caller.is_work = True
            try:
                result = work()
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(result)

        threading.Thread(target=call, name=f"{_THREAD_NAME} {name}", daemon=True).start()
        running = asyncio.wrap_future(ended)
        try:
            # Not `asyncio.shield`: on Python 3.14, it logs errors after a cancellation.
            await asyncio.wait({running})
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            while not running.done():  # several events may cancel the same work
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            error = running.exception()
            if error is not None:
                raise error from None
            raise
        return running.result()


class BlockingRecipe(Generic[R]):
    """A recipe of `partage.recipes` on an event loop in a thread; a context manager.

    The loop refers to the asyncio recipe and to the runner, but not to this object. So an object
    that was not closed can be collected, which ends its thread.
    """

    _recipe: R
    _runner: WorkRunner
    _is_closed = False

    def _own(self, recipe: R, runner: WorkRunner) -> None:
        self._recipe = recipe
        self._runner = runner

    def __del__(self) -> None:
        runner: WorkRunner | None = getattr(self, "_runner", None)  # None in a failed constructor
        thread = None if runner is None else runner.thread
        if thread is not None and not self._is_closed and thread.is_of_this_process:
            thread.abandon()
            warn_unclosed(self, type(self).__name__)

    def __enter__(self) -> Self:
        """Join the group."""
        if self._runner.thread is None and not self._is_closed:
            membership = self._recipe.membership
            self._runner.thread = LoopThread(_THREAD_NAME, cleanup=membership._clean_up)
            self._call(membership.start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait until the work has stopped, and leave the group. A second call does nothing.

        Raises:
            CalledFromWorkError: The work itself called it.
        """
        self._runner.check_caller()
        thread = self._runner.thread
        if self._is_closed or thread is None:
            self._is_closed = True
            return
        thread.check_caller()
        self._is_closed = True
        try:
            thread.call(self._recipe.close())
        finally:  # Also if Ctrl-C interrupted it
            thread.stop()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_ms: int | None = None) -> T:
        """Run a coroutine function on the loop and return its result.

        Args:
            work: The coroutine function.
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: The result did not arrive within ``timeout_ms``.
            NotAMemberError: The recipe was not started, or is closed.
        """
        check_optional_timeout_ms(timeout_ms)
        thread = self._runner.thread
        if thread is None or self._is_closed:
            raise NotAMemberError(self._recipe.membership.settings.group_id)

        async def within() -> T:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await work()

        return thread.call(within())

    def _on_loop(self, work: Callable[[], None]) -> None:
        async def done() -> None:
            work()

        self._call(done)


def check_blocking(name: str, work: object, takes: str) -> None:
    """Raise if a value cannot be called, or is a coroutine function.

    Args:
        name: The name of the argument.
        work: The value to check.
        takes: The parameters of the function, for the message.

    Raises:
        InvalidArgumentError: The value cannot be called, or is a coroutine function.
    """
    check_function(name, work, takes)
    if inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(type(work).__call__):
        raise InvalidArgumentError(
            f"{name} is a coroutine function, which only the classes of partage.recipes can await"
        )
