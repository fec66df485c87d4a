"""The part that all recipes share: their processes, and checks after the faults."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from partage.testing.recipe_worlds.recipe_process import RecipeProcess
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.errors import WaitTimeoutError
from partage.testing.world.world import PartageWorld

GROUP: Final = "g"
#: Beyond two sessions and a rebalance, the recovery after all faults may take this long.
_RECOVERY_S: Final = 60.0

_P = TypeVar("_P", bound=RecipeProcess)


class RecipeProgram(ABC, Generic[_P]):
    """The processes of one recipe, and the rules about them.

    Args:
        world: The world.
        scenario: Its options.

    Attributes:
        processes: The processes, by name.
    """

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        self.world = world
        self.scenario = scenario
        names = [f"process-{number + 1}" for number in range(scenario.processes)]
        self.processes: dict[str, _P] = {name: self.create_process(name) for name in names}

    @abstractmethod
    def create_process(self, name: str) -> _P:
        """Return a process; it is not started."""

    async def prepare(self) -> None:
        """Create what the processes need."""

    @abstractmethod
    async def check(self) -> None:
        """Check the recipe after all faults, and that it does its work in small changes."""

    async def finish(self) -> None:
        """Check what the processes have left, after their end."""

    @property
    @abstractmethod
    def work_count(self) -> int:
        """The amount of work: 0 means that the rules had nothing to judge."""

    @property
    def recovery_s(self) -> float:
        """The longest time from the end of the faults to normal work, in seconds."""
        scenario = self.scenario
        rebalance_s = max(scenario.rebalance_timeout_ms / 1000, scenario.session_s)
        return (
            _RECOVERY_S + 2 * scenario.session_s + rebalance_s + scenario.rebalance_delay_ms / 1e3
        )

    @property
    def handover_s(self) -> float:
        """The longest time from a clean change of the group to normal work, in seconds."""
        return 3 * self.scenario.heartbeat_interval_ms / 1000 + 2 * self.cleanup_s + 3.0

    @property
    def cleanup_s(self) -> float:
        """The longest time that work takes to stop in any process, in seconds."""
        return max(process.cleanup_s for process in self.processes.values())

    async def wait(self, rule: str, what: str, condition: Callable[[], bool], for_s: float) -> None:
        """Wait for a condition; break a rule if it does not become true in time."""
        try:
            await self.world.until(condition, timeout_s=for_s)
        except WaitTimeoutError:
            await self.fail(rule, f"{what} not within {for_s:g} s")

    async def fail(self, rule: str, text: str) -> None:
        """Break a rule, and stop."""
        self.world.break_rule(rule, text)
        await asyncio.Event().wait()

    async def stop(self, name: str) -> None:
        """Let a process close its recipe and end."""
        process = self.processes[name]
        process.is_stopped = True
        await self.wait(
            "close", f"the end of {name}", lambda: not self.world.is_running(name), 90.0
        )

    def start(self, name: str) -> None:
        """Start a process that has ended."""
        self.processes[name].is_stopped = False
        self.world.restart(name)
