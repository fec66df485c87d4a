"""An asyncio event loop on the clock of a world.

It has no queue: each callback is a call of the clock. So all brokers and clients of a world share
one order of events, and a broker's process pauses and dies with its calls.

The methods have the types that the broker needs. Those of `asyncio` are wider: type variables,
sockets, TLS. So these methods ignore the error `override`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from asyncio import events
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from partage.lab.brokers.environment import run_in_world
from partage.lab.brokers.shell import BrokerShell, ProcessDiedError
from partage.lab.environment.disk import PowerLossError

#: Rounding errors of times in seconds, in milliseconds.
_ROUNDING_MS: Final = 0.01
#: The most `finally` blocks with an await in one coroutine.
_CLOSES_MAX: Final = 50


class ClockLoop(asyncio.BaseEventLoop):
    """The loop of one process of a broker.

    Args:
        shell: The broker; calls run only while its current process lives.
        executor_delay_ms: Draws the time that a function takes in an executor.

    Attributes:
        protocol_factory: Creates the protocol of a connection; None before `create_server`.
    """

    def __init__(self, shell: BrokerShell, executor_delay_ms: Callable[[], int]) -> None:
        super().__init__()
        self.protocol_factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._shell = shell
        self._clock = shell.world.clock
        self._bind = shell.process_binder()
        self._executor_delay_ms = executor_delay_ms
        self._error: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self.connect: Callable[
            [str, asyncio.BaseProtocol], Awaitable[asyncio.Transport]
        ]  # set by the broker, which has the network
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_error)

    def __del__(self) -> None:
        """Forget the loop: nothing must end when a world is no longer needed."""

    def _make_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        private: Any = task
        private._log_destroy_pending = False  # tasks of a process that died stay pending
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def _on_error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if not isinstance(error, ProcessDiedError):
            self._error = error

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock.now_ms / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call after the calls that are due now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule(0, handle, is_timer=False)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call after the calls that are due now; there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay_ms = math.ceil(when * 1000 - self._clock.now_ms - _ROUNDING_MS)
        self._schedule(max(0, delay_ms), handle, is_timer=True)
        return handle

    def _schedule(self, delay_ms: int, handle: asyncio.Handle, *, is_timer: bool) -> None:
        run = self._bind(lambda: self._run(handle))
        shell = self._shell
        self._clock.call_later(delay_ms, lambda: shell.when_awake(run, is_timer=is_timer))

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.enter(handle._run)

    def enter(self, call: Callable[[], object]) -> None:
        """Run code of the broker's process.

        Raises:
            Exception: The code failed, which a broker would log, or a rule is broken.
        """
        if events._get_running_loop() is self:  # the code is part of what runs
            call()
            return
        events._set_running_loop(self)
        try:
            run_in_world(self._shell.world, call)
        except (PowerLossError, ProcessDiedError):
            pass
        finally:
            events._set_running_loop(None)
        if self._shell.disk.has_lost_power:
            self._error = None
            self._shell.lose_power()
        elif self._error is not None:
            error, self._error = self._error, None
            raise error
        failure = self._shell.world.history.failure
        if failure is not None and not self._shell.world.has_ended:
            raise failure

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function after a drawn delay, without a thread."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except PowerLossError:
                raise
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        handle = asyncio.Handle(work, (), self)
        self._schedule(self._executor_delay_ms(), handle, is_timer=False)
        return future

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> _Listener:
        """Accept connections from now on."""
        self.protocol_factory = protocol_factory
        return _Listener(self, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to another broker.

        Raises:
            ConnectionRefusedError: It is down.
        """
        protocol = protocol_factory()
        transport = await self.connect(host, protocol)
        return transport, protocol

    def remove_reader(self, fd: object) -> bool:
        """Return False: nothing reads from a simulated socket."""
        return False

    def abandon(self) -> None:
        """End the coroutines of a process that has died."""
        for task in self._tasks:
            work: Any = task.get_coro()
            for _ in range(_CLOSES_MAX):
                with contextlib.suppress(RuntimeError):  # it awaits in a `finally` block
                    work.close()
                    break
        self._tasks = []
        self.close()


class _Listener:
    """A listening socket and its server."""

    def __init__(self, loop: ClockLoop, host: str, port: int) -> None:
        self._loop = loop
        self._name = host, port

    def get_loop(self) -> ClockLoop:
        """Return the loop."""
        return self._loop

    @property
    def sockets(self) -> tuple[_Listener, ...]:
        """The listening sockets."""
        return (self,)

    def fileno(self) -> int:
        """Return -1: it is simulated."""
        return -1

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self._name

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.protocol_factory = None

    async def wait_closed(self) -> None:
        """Return at once."""
