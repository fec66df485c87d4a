"""A process of one world: it runs a recipe, and now and then closes it and creates a new one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextvars import Context
from random import Random
from types import CoroutineType
from typing import Any, Final

from partage.client.errors import ClientError
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.process import WorldProcess, current_process
from partage.testing.world.world import PartageWorld

_RETRY_S: Final = 1.0
#: Beyond the work's time to stop, a close takes this long at most while there are no faults.
_CALM_CLOSE_S: Final = 5.0
#: `Membership.close` gives up after half a minute, and a processor's last commit takes 10 s more.
_LATE_CLOSE_S: Final = 75.0


#: Connections end a moment after they are closed.
_LINGER_S: Final = 0.2


class InjectedError(Exception):
    """Raised by the code of a user in a world."""


class RecipeProcess(ABC):
    """A process that runs one recipe.

    Args:
        name: The name of the process.
        world: The world.
        scenario: Its options.

    Attributes:
        is_stopped: Closes the recipe and ends the process.
        is_calm: True after all faults: the user's code raises nothing.
        cleanup_s: The longest time that work takes to stop, in seconds.
        checks_connections: False if another library has left connections open.
    """

    def __init__(self, name: str, world: PartageWorld, scenario: RecipeScenario) -> None:
        self.name = name
        self.world = world
        self.scenario = scenario
        self.rng = Random(f"{name} {scenario.seed}")
        self.is_stopped = False
        self.is_calm = False
        self.cleanup_s = scenario.cleanup_s
        self.checks_connections = True
        self._away_s: float | None = None
        self._requests: list[Callable[[], Awaitable[None]]] = []
        self._calm_since_s = 0.0

    @property
    def is_working(self) -> bool:
        """True if the recipe gives this process work now."""
        return False

    def leave(self, away_s: float) -> None:
        """Close the recipe soon, and create a new one after a time."""
        self._away_s = away_s

    async def request(self, call: Callable[[], Awaitable[None]]) -> None:
        """Let the process call a coroutine function, and wait until it has begun."""
        self._requests.append(call)
        await self.world.until(lambda: call not in self._requests)

    async def perform_requests(self) -> None:
        """Call the functions that were requested; the process does this in each turn."""
        while self._requests:
            await self._requests.pop(0)()

    @property
    def must_leave(self) -> bool:
        """True if the recipe must be closed."""
        return self.is_stopped or self._away_s is not None

    def fails_now(self) -> bool:
        """Return True if the user's code raises in this step."""
        return not self.is_calm and self.rng.random() < self.scenario.failure_share

    async def clean_up(self) -> None:
        """Take some time to stop work, often the longest one."""
        if self.cleanup_s:
            await asyncio.sleep(self.cleanup_s * min(1.0, self.rng.uniform(0, 2)))

    async def main(self) -> None:
        """Run recipes until ``is_stopped`` is True."""
        self._away_s = None
        while not self.is_stopped:
            try:
                await self.run_once()
            except ClientError as error:
                self.report(error)
                await asyncio.sleep(_RETRY_S)
            await self._stay_away()

    async def _stay_away(self) -> None:
        away_s, self._away_s = self._away_s, None
        if away_s and not self.is_stopped:
            await asyncio.sleep(away_s)

    @abstractmethod
    async def run_once(self) -> None:
        """Create the recipe, run it until ``must_leave`` is True, and close it."""

    def report(self, error: Exception) -> None:
        """Note an error of the recipe; after the faults it breaks a rule."""
        text = f"{self.name}: {type(error).__name__}: {error}"
        self.world.note(text)
        if self.is_calm and self.world.elapsed_s > self._calm_since_s + _LATE_CLOSE_S:
            self.world.break_rule("failure", text)

    def calm_down(self) -> None:
        """Begin the time without faults."""
        self.is_calm = True
        self._calm_since_s = self.world.elapsed_s

    async def close(self, recipe: Any) -> None:
        """Close a recipe, and check that it ends in time and leaves nothing behind."""
        world, process = self.world, current_process.get()
        assert process is not None
        began_s, was_calm = world.elapsed_s, self.is_calm
        try:
            await recipe.close()
        except ClientError as error:
            self.report(error)
        paused_s = process.resumed_s - max(began_s, process.paused_s)
        took_s = world.elapsed_s - began_s - max(0.0, paused_s)
        await asyncio.sleep(_LINGER_S)
        is_settled = was_calm and began_s > self._calm_since_s + _LATE_CLOSE_S
        limit_s = _CALM_CLOSE_S if is_settled else _LATE_CLOSE_S
        if took_s > limit_s + self.cleanup_s:
            world.break_rule("close", f"close of {self.name} took {took_s:.1f} s")
        self._check_leftovers(process, is_settled=is_settled)

    def _check_leftovers(self, process: WorldProcess, *, is_settled: bool) -> None:
        world = self.world
        count = world.connection_count(self.name) if self.checks_connections else 0
        if is_settled and count:
            world.break_rule("close", f"{self.name} has {count} connections after close")
        for task in asyncio.all_tasks():
            work = task.get_coro()
            if isinstance(work, CoroutineType) and _process_of(task) is process:
                file: str = work.cr_code.co_filename
                if "/partage/recipes/" in file:
                    world.break_rule("close", f"{self.name} leaves a task of a recipe: {work}")


def _process_of(task: asyncio.Task[Any]) -> WorldProcess | None:
    """Return the process of a task; None if Python does not tell it (before 3.12)."""
    get_context: Callable[[], Context] | None = getattr(task, "get_context", None)
    if get_context is None:
        return None
    found: WorldProcess | None = get_context().get(current_process.variable)
    return found
