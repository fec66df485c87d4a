"""The processes of a simulated world: groups of tasks that are killed and paused together."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from partage.testing.world.virtual_loop import VirtualLoop

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
        was_killed: like ``is_killed``, but stays True while the world ends.
        has_failed: True if its main coroutine raised an exception.
        has_ended: True while the world ends and all tasks are cancelled.
    """

    def __init__(self, loop: VirtualLoop, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.is_killed = False
        self.is_paused = False
        self.was_killed = False
        self.has_failed = False
        self.has_ended = False
        self.task: asyncio.Task[Any] | None = None
        self.context = current_process.context_of(self)
        self._loop = loop
        self._delayed: list[asyncio.Handle] = []

    def start(self, main: Main) -> None:
        """Start the main coroutine."""
        work = self.context.run(main)
        self.task = self._loop.create_task(work, context=self.context)

    @property
    def is_running(self) -> bool:
        """True unless it was killed or its main coroutine has ended."""
        return not self.is_killed and self.task is not None and not self.task.done()

    def intercepts(self, handle: asyncio.Handle) -> bool:
        """Return True if a callback must not run now; it runs after a pause."""
        if self.is_paused and not self.is_killed:
            self._delayed.append(handle)
            return True
        return self.is_killed

    def kill(self) -> None:
        """End it at once, as SIGKILL does: not even ``finally`` blocks run."""
        self.is_killed = self.was_killed = True
        self._delayed.clear()

    def pause(self) -> None:
        """Stop its code until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Run the callbacks that became due during the pause, and continue."""
        if self.is_paused:
            self.is_paused = False
            delayed, self._delayed = self._delayed, []
            self._loop.make_ready(delayed)

    def __repr__(self) -> str:
        state = "killed" if self.is_killed else "paused" if self.is_paused else "running"
        return f"<process {self.name}: {state if self.is_running or self.is_killed else 'ended'}>"
