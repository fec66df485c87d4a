"""The processes of a simulated world: groups of tasks that are killed and paused together."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from types import CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from partage.testing.world.virtual_loop import VirtualLoop

#: Packages whose code does not change by itself what a consumer fetches.
_CLIENTS: Final = (
    "aiokafka.",
    "asyncio.",
    "partage.client.",
    "partage.testing.world.client_loop.",
    "partage.testing.world.network.",
    "partage.testing.world.patches.",
)

Main = Callable[[], Coroutine[Any, Any, Any]]


class _CurrentProcess:
    """The process to which the running code belongs, None for the test itself."""

    def __init__(self) -> None:
        self.variable: contextvars.ContextVar[WorldProcess | None] = contextvars.ContextVar(
            "partage_world_process", default=None
        )

    def get(self) -> WorldProcess | None:
        """Return the process of the running code."""
        return self.variable.get()

    def context_of(self, process: WorldProcess) -> contextvars.Context:
        """Return a new context in which code belongs to ``process``."""
        context = contextvars.copy_context()
        context.run(self.variable.set, process)
        return context


current_process = _CurrentProcess()


class WorldProcess:
    """One run of a process, from its start until it ends or is killed.

    Attributes:
        name: its name, which is also its host in the network.
        directory: a directory that survives kills, for its files.
        task: its main task.
        is_killed: True after a kill: its code no longer runs.
        is_paused: True while it is stopped, as by SIGSTOP: its code runs later.
        has_ended: True while the world ends and all tasks are cancelled.
        paused_s: the time at which its last pause began, in virtual seconds.
        resumed_s: the time at which its last pause ended, in virtual seconds.
        is_checked: True if its callbacks are run by `run`; otherwise that would only take time.
    """

    def __init__(self, loop: VirtualLoop, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.is_killed = False
        self.is_paused = False
        self.has_ended = False
        self.paused_s = 0.0
        self.resumed_s = 0.0
        self.is_checked = False
        self.task: asyncio.Task[Any] | None = None
        self.context = current_process.context_of(self)
        self._loop = loop
        self._delayed: list[asyncio.Handle] = []
        self._lost_steps: list[asyncio.Handle] = []
        self._watchers: dict[object, Callable[[], None]] = {}
        # `_user_state` after the last step of each task; it changes only in steps.
        self._user_states: dict[asyncio.Task[Any], object] = {}

    def start(self, main: Main) -> None:
        """Start the main coroutine.

        Raises:
            TypeError: ``main`` is not a function that returns a coroutine.
        """
        if not callable(main):
            raise TypeError(
                f"process {self.name!r} needs a function that returns a coroutine, not "
                f"{type(main).__name__}: write lambda: work(servers) instead of work(servers)"
            )
        work = self.context.run(main)
        self.task = self._loop.create_task(work, context=self.context)

    @property
    def is_running(self) -> bool:
        """True unless it was killed or its main coroutine has ended."""
        return not self.is_killed and self.task is not None and not self.task.done()

    def run(self, handle: asyncio.Handle) -> None:
        """Run a callback, now or after a pause, or never after a kill."""
        if self.is_killed:
            self._keep_step(handle)
            return
        if self.is_paused:
            self._delayed.append(handle)
            return
        if self._watchers:
            self._run_watched(handle)
        else:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # private

    def _run_watched(self, handle: asyncio.Handle) -> None:
        """Run a callback, and tell the watchers if it has run code of the user's program."""
        callback: Any = handle._callback  # type: ignore[attr-defined]  # private in asyncio
        context, args = handle._context, handle._args  # type: ignore[attr-defined]  # private
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            before = self._user_states.pop(owner, None) or _user_state(owner)
            context.run(callback, *args)
            after = _user_state(owner)
            if self._watchers and not owner.done():
                self._user_states[owner] = after
            has_run = before != after
        else:
            module = getattr(callback, "__module__", None) or ""
            has_run = not isinstance(owner, asyncio.Future) and not _is_of_client[module]
            context.run(callback, *args)
        if has_run:
            self._on_activity()

    def watch(self, key: object, on_activity: Callable[[], None]) -> None:
        """Call a function after code of the user's program has run, until `unwatch`."""
        if not self._watchers:
            self._user_states.clear()  # tasks have run meanwhile
        self._watchers[key] = on_activity
        self.is_checked = True

    def unwatch(self, key: object) -> None:
        """End a `watch`; without one, nothing happens."""
        self._watchers.pop(key, None)
        self.is_checked = self.is_killed or self.is_paused or bool(self._watchers)

    def _on_activity(self) -> None:
        for on_activity in list(self._watchers.values()):
            on_activity()

    def kill(self) -> None:
        """End it at once, as SIGKILL does: not even ``finally`` blocks run."""
        self.is_killed = self.is_checked = True
        delayed, self._delayed = self._delayed, []
        for handle in delayed:
            self._keep_step(handle)

    def _keep_step(self, handle: asyncio.Handle) -> None:
        callback: Any = handle._callback  # type: ignore[attr-defined]  # private in asyncio
        if isinstance(getattr(callback, "__self__", None), asyncio.Task):
            self._lost_steps.append(handle)

    def take_lost_steps(self) -> list[asyncio.Handle]:
        """Return steps of tasks that a kill has prevented; without them no task can end."""
        steps, self._lost_steps = self._lost_steps, []
        return steps

    def pause(self) -> None:
        """Stop its code until `resume`."""
        if not self.is_paused:
            self.paused_s = self._loop.elapsed_s
        self.is_paused = self.is_checked = True

    def resume(self) -> None:
        """Run the callbacks that became due during the pause, and continue."""
        if self.is_paused:
            self.is_paused = False
            self.resumed_s = self._loop.elapsed_s
            self._on_activity()
            delayed, self._delayed = self._delayed, []
            self._loop.make_ready(delayed)

    def __repr__(self) -> str:
        state = "killed" if self.is_killed else "paused" if self.is_paused else "running"
        return f"<process {self.name}: {state if self.is_running or self.is_killed else 'ended'}>"


def _user_state(task: asyncio.Task[Any]) -> object:
    """Return where code of the user waits in a task; `_NO_USER_CODE` if only clients' code does.

    Code of the user has run in a step of the task if a later state is not equal. The state has the
    awaited object itself, because another one could get its address later.
    """
    found: object = _NO_USER_CODE
    work: Any = task.get_coro()
    while work is not None:  # what a coroutine awaits may be another one
        kind: Any = type(work)
        if kind is CoroutineType:
            code, awaited = work.cr_code, work.cr_await
        elif kind is GeneratorType:
            code, awaited = work.gi_code, work.gi_yieldfrom
        elif _is_async_generator(kind):
            return object()  # it does not tell what it awaits
        else:
            break
        if code.co_filename not in _client_files:
            frame = work.cr_frame if kind is CoroutineType else work.gi_frame
            if frame is not None and not _is_frame_of_client(frame):
                found = frame.f_lasti, awaited
        work = awaited
    return found


@cache
def _is_async_generator(kind: type) -> bool:
    return kind.__name__.startswith("async_generator")


def _is_frame_of_client(frame: FrameType) -> bool:
    """Return True for code of clients and asyncio; a later look-up by its file takes less time."""
    is_of_client, file = _is_of_client[frame.f_globals["__name__"]], frame.f_code.co_filename
    if is_of_client and not file.startswith("<"):  # several modules may have code of "<string>"
        _client_files.add(file)
    return is_of_client


class _ModuleKinds(dict[str, bool]):
    """True for the modules of clients and asyncio, by name."""

    def __missing__(self, module: str) -> bool:
        self[module] = found = f"{module}.".startswith(_CLIENTS)
        return found


#: The state of tasks without code of the user.
_NO_USER_CODE: Final = "no user code"
_is_of_client: Final = _ModuleKinds()
_client_files: Final[set[str]] = set()
