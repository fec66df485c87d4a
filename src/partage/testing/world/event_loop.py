"""An asyncio event loop in virtual time, whose every decision comes from one seed.

Time advances only from one timer to the next. There are no sockets and no threads: connections are
those of a `WorldNetwork`, and functions for an executor run on the loop's thread after a drawn
delay. Each callback belongs to a `WorldProcess`, which may be killed or paused.

Garbage is collected after a number of turns, because the time of an automatic collection depends on
all that the interpreter did before.

Two libraries for deterministic asyncio exist (simloop, simloom). Both need Python 3.12, and their
networks lack the flow control on which a broker relies.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import math
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, cast

from greenlet import greenlet  # type: ignore[import-untyped]  # it has no stubs

from partage.testing.world.client_loop import WorldClientLoop
from partage.testing.world.errors import NotSimulatedError, StalledWorldError
from partage.testing.world.network import WorldNetwork
from partage.testing.world.process import current_process
from partage.testing.world.virtual_loop import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: The reading of the monotonic clock at the start of a world, in seconds.
_START_S: Final = 1_000.0
#: The longest time that an executor's function takes, in seconds.
_EXECUTOR_MAX_S: Final = 0.002
#: The duration of a turn, in seconds: a timer that fires a rounding error early makes progress.
_TURN_S: Final = 1e-6
#: More turns than this without an advance of the time indicate a task that repeats without a delay.
_TURNS_MAX: Final = 200_000
#: Garbage is collected after this number of turns, because finalizers may write to the story.
_TURNS_PER_COLLECTION: Final = 20_000
#: Cancelled timers are removed if there are more than this, and more than half of all timers.
_CANCELLED_TIMERS_MAX: Final = 50

_new: Final = object.__new__


class _WorldHandle(asyncio.Handle):
    """A callback of a process; written for speed, because a world runs millions of them."""

    __slots__ = ()
    # Debug mode has no effect on handles.
    _source_traceback = None
    _repr = None

    # `WorldLoop.call_soon` sets the attributes: a call of `__init__` takes longer.

    def cancel(self) -> None:
        """Cancel the callback."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does


class _WorldTimerHandle(asyncio.TimerHandle):
    """The same with a time."""

    __slots__ = ()
    _source_traceback = None
    _repr = None

    # `WorldLoop._set_timer` sets the attributes.
    _callback: Callable[..., object]
    _loop: WorldLoop
    _context: contextvars.Context
    _scheduled: bool

    def cancel(self) -> None:
        """Cancel the callback."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does
            if self._scheduled:
                self._loop.cancelled_timer_count += 1


class _OrderedTask(asyncio.Task[T]):
    """A task with a hash by order, so that the order of a set of tasks is repeatable."""

    __slots__ = ("serial",)

    def __init__(self, work: Coroutine[Any, Any, T], *, loop: WorldLoop, **options: Any) -> None:
        self.serial = next(loop.future_serials)  # first, because asyncio may hash the task
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self.serial


class _OrderedFuture(asyncio.Future[T]):
    """A future with a hash by order."""

    __slots__ = ("serial",)
    serial: int

    def __hash__(self) -> int:
        return self.serial


class WorldLoop(asyncio.BaseEventLoop, VirtualLoop):
    """The event loop of a simulated world.

    Args:
        rng: draws the delays of executors.

    Attributes:
        network: the network of the world; set before the first connection.
        leaves_clients_open: True if clients may be collected that no code has closed.
    """

    network: WorldNetwork
    leaves_clients_open = False

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._now_s = _START_S
        self._rng = rng
        self._turns = 0  # since the last advance of the time
        self._turns_to_collection = _TURNS_PER_COLLECTION
        self._serials = itertools.count(1)  # of timers
        self.future_serials = itertools.count(1)  # of tasks and futures, in order of creation
        self.cancelled_timer_count = 0  # of those that are still scheduled
        self._timers: list[tuple[float, int, _WorldTimerHandle]] = []  # a heap
        self._callbacks: deque[asyncio.Handle] = deque()  # of the next turn
        self.set_task_factory(cast(Any, _create_task))

    # Time

    def time(self) -> float:
        """Return the virtual time in seconds; it starts at an arbitrary value."""
        return self._now_s

    @property
    def elapsed_s(self) -> float:
        """The virtual time since the start of the world, in seconds."""
        return self._now_s - _START_S

    def _run_once(self) -> None:
        """Run turns until the loop is stopped; asyncio's base class calls it."""
        self._run_turns(single=False)

    def run_turn(self) -> None:
        """Run one turn while a callback of this loop waits for the result of another task."""
        current = asyncio.current_task(self)
        if current is not None:
            asyncio.tasks._leave_task(self, current)
        try:
            self._run_turns(single=True)
        finally:
            if current is not None:
                asyncio.tasks._enter_task(self, current)

    def _run_turns(self, *, single: bool) -> None:
        """Run a turn, or turns until the loop is stopped. It is written for speed.

        The time advances to the next timer, or by the duration of a turn: a repeated timer of 0 s
        makes progress, too.

        Raises:
            StalledWorldError: no timer exists, so all tasks would wait for ever; or callbacks
                repeat endlessly at one time.
        """
        timers, callbacks, pop = self._timers, self._callbacks, heappop
        process_variable = current_process.variable
        while True:
            self._turns_to_collection -= 1
            if not self._turns_to_collection:
                self._turns_to_collection = _TURNS_PER_COLLECTION
                gc.collect(1)
            if self.cancelled_timer_count > _CANCELLED_TIMERS_MAX:
                self._remove_cancelled_timers()
            while timers and timers[0][2]._cancelled:
                pop(timers)
                self.cancelled_timer_count -= 1
            if callbacks or self._stopping:  # type: ignore[attr-defined]  # private in asyncio
                self._now_s += _TURN_S
                self._turns += 1
                if self._turns > _TURNS_MAX:
                    self._fail_busy()
            elif not timers:
                raise StalledWorldError(
                    "all tasks of the world wait, and no timer is set: they would wait for ever"
                )
            elif timers[0][0] > self._now_s:
                self._turns = 0
                self._now_s = timers[0][0]
            else:
                self._now_s += _TURN_S
            now_s = self._now_s
            while timers and timers[0][0] <= now_s:
                timer = pop(timers)[2]
                if timer._cancelled:
                    self.cancelled_timer_count -= 1
                else:
                    timer._scheduled = False
                    callbacks.append(timer)
            for _ in range(len(callbacks)):
                if not callbacks:
                    break  # a turn inside of this one has run them
                handle = callbacks.popleft()
                if handle._cancelled:
                    continue
                context = handle._context  # type: ignore[attr-defined]  # private in asyncio
                process = context.get(process_variable)
                try:
                    if process is not None and process.is_checked:
                        process.run(handle)
                    else:
                        args = handle._args
                        if args:
                            context.run(handle._callback, *args)  # type: ignore[attr-defined]  # private in asyncio
                        else:
                            context.run(handle._callback)  # type: ignore[attr-defined]  # private in asyncio
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(handle, error)
            if single or self._stopping:  # type: ignore[attr-defined]  # private in asyncio
                return

    def _remove_cancelled_timers(self) -> None:
        timers = self._timers
        if self.cancelled_timer_count > len(timers) // 2:
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapify(timers)
            self.cancelled_timer_count = 0

    def _fail_busy(self) -> NoReturn:
        self._turns = 0  # the world is ended with further turns
        raise StalledWorldError(
            f"{_TURNS_MAX} turns of the loop without a pause at {self.elapsed_s:.3f} s: a task "
            "repeats its work; add an asyncio.sleep() to its loop"
        )

    def _report(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    # Callbacks and tasks; asyncio's base class calls these methods, and they replace its own.

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback in the next turn; see `asyncio.loop.call_soon`."""
        if self._closed:  # type: ignore[attr-defined]  # private in asyncio
            self._check_closed()  # type: ignore[attr-defined]  # private in asyncio
        handle: Any = _new(_WorldHandle)
        handle._callback = callback
        handle._args = args
        handle._loop = self
        handle._context = copy_context() if context is None else context
        handle._cancelled = False
        self._callbacks.append(handle)
        return cast(asyncio.Handle, handle)

    call_soon_threadsafe = call_soon  # the loop has one thread

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback; see `asyncio.loop.call_later`."""
        return self._set_timer(self._now_s + delay, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback; see `asyncio.loop.call_at`.

        Timers of the same time run in the order of their creation.
        """
        return self._set_timer(when, callback, args, context)

    def _set_timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        if self._closed:  # type: ignore[attr-defined]  # private in asyncio
            self._check_closed()  # type: ignore[attr-defined]  # private in asyncio
        timer: Any = _new(_WorldTimerHandle)
        timer._when = when
        timer._callback = callback
        timer._args = args
        timer._loop = self
        timer._context = copy_context() if context is None else context
        timer._cancelled = False
        timer._scheduled = True
        heappush(self._timers, (when, next(self._serials), timer))
        return cast(asyncio.TimerHandle, timer)

    def next_serial(self) -> int:
        """Return a number that is higher than those of all timers so far."""
        return next(self._serials)

    def first_timer_s(self, process: object, after_serial: int) -> float:
        """Return the time of a process's first timer with a higher number; infinity without one."""
        variable = current_process.variable
        return min(
            (
                at_s
                for at_s, serial, timer in self._timers
                if serial > after_serial
                and not timer._cancelled
                and timer._context.get(variable) is process
            ),
            default=math.inf,
        )

    def pending_timers(self) -> list[Callable[..., object]]:
        """Return the functions of all timers that are set."""
        return [timer._callback for _, _, timer in self._timers if not timer._cancelled]

    def make_ready(self, handles: Sequence[asyncio.Handle]) -> None:
        """Run delayed callbacks in the next turn."""
        self._callbacks.extend(handles)

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Return all tasks that have not ended, except the running one, in order of creation."""
        current = asyncio.current_task(self)
        return sorted((each for each in asyncio.all_tasks(self) if each is not current), key=hash)

    # The debug mode of asyncio has no effect. A builtin returns False in less time than a method,
    # and asyncio calls this for each future.
    get_debug = staticmethod(bool)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        future: _OrderedFuture[Any] = _OrderedFuture(loop=self)
        future.serial = next(self.future_serials)
        return future

    def close(self) -> None:
        """Close the loop and drop all callbacks."""
        self._callbacks.clear()
        self._timers.clear()
        super().close()

    # Executors

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function on the loop's thread after a drawn delay, whatever the executor.

        It runs in a greenlet, so that it may wait for results of the loop.
        """
        future = self.create_future()
        context = copy_context()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                if isinstance(error, (SystemExit, KeyboardInterrupt)):
                    raise
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        def start() -> None:
            thread = greenlet(work)
            thread.gr_context = context
            thread.switch()

        self.call_later(self._rng.uniform(0, _EXECUTOR_MAX_S), start)
        return future

    def start_daemon_thread(self, work: Callable[[], object]) -> None:
        """Run a function like an executor; the program cannot wait for its end."""
        self.run_in_executor(None, work)

    async def shutdown_default_executor(  # asyncio's signature
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Do nothing: there are no threads."""

    # Network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        """Resolve each name to itself."""
        number = int(port or 0)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, number))]

    async def create_connection(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **options: Any,
    ) -> Any:
        """Connect to a listener of the world; see `asyncio.loop.create_connection`."""
        if ssl:
            raise NotSimulatedError("TLS", "use a plaintext listener in a simulated world")
        if sock is not None or host is None:
            raise NotSimulatedError("a connection of an existing socket", "give host and port")
        return await self.network.connect(protocol_factory, host, int(port))

    async def create_server(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **options: Any,
    ) -> Any:
        """Listen on an address of the world; see `asyncio.loop.create_server`."""
        if ssl:
            raise NotSimulatedError("TLS", "use a plaintext listener in a simulated world")
        if sock is not None:
            raise NotSimulatedError("a server of an existing socket", "give host and port")
        return self.network.listen(protocol_factory, host, int(port or 0))

    def remove_reader(self, fd: Any) -> bool:
        """Do nothing: there are no sockets."""
        return False

    def create_client_loop(
        self, name: str, cleanup: Callable[[], Coroutine[Any, Any, None]] | None
    ) -> WorldClientLoop:
        """Return the loop of a client, which has a thread outside of simulated worlds."""
        return WorldClientLoop(self, name, cleanup)


def _create_task(loop: WorldLoop, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
    return _OrderedTask(work, loop=loop, **options)
