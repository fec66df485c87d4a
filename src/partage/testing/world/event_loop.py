"""An asyncio event loop in virtual time, whose every decision comes from one seed.

Time advances only from one timer to the next. There are no sockets and no threads: connections are
those of a `WorldNetwork`, and functions for an executor run on the loop's thread after a drawn
delay. Each callback belongs to a `WorldProcess`, which may be killed or paused.

Two libraries for deterministic asyncio exist (simloop, simloom). Both need Python 3.12, and their
networks lack the flow control on which a broker relies.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple, cast

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


class _TimeSelector:
    """Takes the place of a selector: instead of waiting for sockets, it advances the time."""

    def __init__(self, loop: WorldLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the time to the next timer, at most by ``timeout``."""
        self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Do nothing."""


def _is_intercepted(handle: Any) -> bool:
    process = current_process.get_in(handle._context)
    return process is not None and process.intercepts(handle)


class _WorldHandle(asyncio.Handle):
    """A callback of a process: dropped if the process was killed, delayed while it is paused."""

    __slots__ = ()

    def _run(self) -> None:
        if not _is_intercepted(self):
            super()._run()


class _WorldTimerHandle(asyncio.TimerHandle):
    """The same with a time. Timers of the same time run in the order of their creation."""

    __slots__ = ("_serial",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: WorldLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._serial = next(loop.serials)

    def __lt__(self, other: object) -> bool:
        # This is the most frequent call of a world, so it is written for speed.
        mine, its = self._when, other._when  # type: ignore[attr-defined]
        if mine == its:
            return self._serial < other._serial  # type: ignore[attr-defined, no-any-return]
        return mine < its  # type: ignore[no-any-return]

    def _run(self) -> None:
        if not _is_intercepted(self):
            super()._run()


class _OrderedTask(asyncio.Task[T]):
    """A task with a hash by creation, so that the order of a set of tasks is repeatable."""

    def __init__(self, work: Coroutine[Any, Any, T], *, loop: WorldLoop, **options: Any) -> None:
        self._serial = next(loop.serials)
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _OrderedFuture(asyncio.Future[T]):
    """A future with a hash by creation."""

    def __init__(self, loop: WorldLoop) -> None:
        self._serial = next(loop.serials)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other


class WorldLoop(asyncio.BaseEventLoop, VirtualLoop):
    """The event loop of a simulated world.

    Args:
        rng: draws the delays of executors.

    Attributes:
        network: the network of the world; set before the first connection.
    """

    network: WorldNetwork

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._now_s = _START_S
        self._rng = rng
        self._turns = 0
        self.serials = itertools.count()  # of timers, tasks and futures
        self._selector = _TimeSelector(self)
        self.set_task_factory(cast(Any, _create_task))

    # Time

    def time(self) -> float:
        """Return the virtual time in seconds; it starts at an arbitrary value."""
        return self._now_s

    @property
    def elapsed_s(self) -> float:
        """The virtual time since the start of the world, in seconds."""
        return self._now_s - _START_S

    def advance(self, timeout_s: float | None) -> None:
        """Advance to the next timer, at most by ``timeout_s``.

        Raises:
            StalledWorldError: no timer exists, so all tasks would wait for ever; or callbacks
                repeat endlessly at one time.
        """
        if timeout_s is None:
            raise StalledWorldError(
                "all tasks of the world wait, and no timer is set: they would wait for ever"
            )
        if timeout_s <= 0:
            self._now_s += _TURN_S
            self._turns += 1
            if self._turns > _TURNS_MAX:
                self._turns = 0  # the world is ended with further turns
                raise StalledWorldError(
                    f"{_TURNS_MAX} turns of the loop without a pause at {self.elapsed_s:.3f} s: a "
                    "task repeats its work; add an asyncio.sleep() to its loop"
                )
            return
        self._turns = 0
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._now_s = max(self._now_s, min(scheduled[0].when(), self._now_s + timeout_s))

    # Callbacks and tasks; asyncio's base class calls these methods, and they replace its own.

    def _call_soon(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context | None,
    ) -> asyncio.Handle:
        handle = _WorldHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback; see `asyncio.loop.call_at`."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = _WorldTimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def make_ready(self, handles: Sequence[asyncio.Handle]) -> None:
        """Run delayed callbacks in the next turn."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return _OrderedFuture(self)

    def run_turn(self) -> None:
        """Run one turn while a callback of this loop waits for the result of another task."""
        current = asyncio.current_task(self)
        ready = self._ready  # type: ignore[attr-defined]
        outer_count = len(ready)
        if current is not None:
            asyncio.tasks._leave_task(self, current)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            if current is not None:
                asyncio.tasks._enter_task(self, current)
            # The turn around this one still takes as many callbacks as it has counted.
            for _ in range(outer_count - len(ready)):
                done = asyncio.Handle(_do_nothing, (), self)
                done.cancel()
                ready.append(done)

    def _process_events(self, events: list[Any]) -> None:
        assert not events, "there are no sockets"

    def _write_to_self(self) -> None:
        """Do nothing: the loop has one thread, which need not be woken."""

    # Executors

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function on the loop's thread after a drawn delay, whatever the executor.

        It runs in a greenlet, so that it may wait for results of the loop.
        """
        future = self.create_future()
        context = contextvars.copy_context()

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


def _do_nothing() -> None:
    """Do nothing."""


def _create_task(loop: WorldLoop, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
    return _OrderedTask(work, loop=loop, **options)
