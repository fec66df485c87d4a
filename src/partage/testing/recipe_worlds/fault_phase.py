"""The faults of one world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from partage.testing.recipe_worlds.recipe_process import RecipeProcess
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.shell_worlds.session_fault import disturb_session
from partage.testing.world.fault_injection import CONNECTION_FAULTS
from partage.testing.world.world import PartageWorld

#: The longest delay in a slow network.
_LATENCY_S: Final = 0.6


_Cause = Callable[[Random], Awaitable[None]]


class RecipeFaults:
    """The faults of one world.

    Args:
        world: The world.
        scenario: Its options.
        processes: The processes with the recipe, by name.
        group: Their group.
    """

    def __init__(
        self,
        world: PartageWorld,
        scenario: RecipeScenario,
        processes: Mapping[str, RecipeProcess],
        group: str,
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._processes = processes
        self._group = group

    async def run(self) -> None:
        """Cause all faults, and wait until the last one has begun."""
        world, scenario = self._world, self._scenario
        world.draw_faults(
            scenario.faults,
            within_s=scenario.within_s,
            targets=sorted([*self._processes, *world.brokers]),
        )
        await asyncio.gather(
            self._repeat("pauses", scenario.session_pauses, self._pause),
            self._repeat("departures", scenario.departures, self._leave),
            self._repeat("kills", scenario.broker_kills, self._kill_broker),
            self._repeat("connections", scenario.connection_faults, self._fail_connection),
            self._repeat("responses", scenario.late_responses, self._delay_response),
            self._repeat("sessions", scenario.session_faults, self._fail_session),
            asyncio.sleep(scenario.within_s),
        )

    async def _repeat(self, name: str, count: int, cause: _Cause) -> None:
        """Cause a kind of fault at drawn times."""
        rng = Random(f"{name} {self._scenario.seed}")
        begin_s = self._world.elapsed_s
        for at_s in sorted(rng.uniform(0, self._scenario.within_s) for _ in range(count)):
            await asyncio.sleep(max(0, begin_s + at_s - self._world.elapsed_s))
            await cause(rng)

    def _draw_process(self, rng: Random) -> str:
        return rng.choice(sorted(self._processes))

    def _draw_busy_process(self, rng: Random) -> str:
        """Return a process, more often one that works."""
        busy = sorted(name for name, each in self._processes.items() if each.is_working)
        return rng.choice(busy) if busy and rng.random() < 0.7 else self._draw_process(rng)

    async def _pause(self, rng: Random) -> None:
        """Pause a process until just before or just after its session ends, or cut it off.

        Its last heartbeat is up to an interval old. Work stops before the end of the session, so
        shorter pauses count, too.
        """
        name = self._draw_busy_process(rng)
        heartbeat_s = self._scenario.heartbeat_interval_ms / 1000
        longest_s = heartbeat_s + 2 * self._scenario.stop_s
        for_s = max(0.1, self._scenario.session_s + rng.uniform(-longest_s, heartbeat_s))
        if rng.random() < 0.6:
            self._world.pause(name, for_s)
            return
        for broker in self._world.brokers:
            self._world.cut(name, broker, for_s + longest_s)

    async def _delay_response(self, rng: Random) -> None:
        """Suspend a process while a response is on its way, and cut it off when it continues.

        It handles an old response then, and no later request of it reaches the coordinator. The
        pause ends before its work would stop.
        """
        world, scenario = self._world, self._scenario
        longest_s = scenario.session_s - scenario.stop_s - scenario.heartbeat_interval_ms / 500
        name = self._draw_busy_process(rng)
        world.slow_network(2.0)
        await asyncio.sleep(1.0 + rng.uniform(0, 0.5))
        pause_s = _LATENCY_S + max(0.0, longest_s - _LATENCY_S) * rng.uniform(0.7, 1)
        world.pause(name, pause_s)
        await asyncio.sleep(_LATENCY_S)
        for broker in world.brokers:
            world.cut(name, broker, pause_s + scenario.session_s)

    async def _leave(self, rng: Random) -> None:
        self._processes[self._draw_process(rng)].leave(rng.choice((0.0, 0.5, 5.0)))

    async def _kill_broker(self, rng: Random) -> None:
        broker = rng.choice(self._world.brokers)
        self._world.kill(broker)
        await asyncio.sleep(rng.choice((0.05, 0.5, 3)))
        if not self._world.is_running(broker):
            self._world.restart(broker)

    async def _fail_connection(self, rng: Random) -> None:
        kind = rng.choice(CONNECTION_FAULTS)
        self._world.fail_connection(
            self._draw_process(rng), kind, rng, for_s=rng.choice((0.5, 3, 10))
        )

    async def _fail_session(self, rng: Random) -> None:
        """Disturb the ZooKeeper session of the coordinator."""
        broker = self._world.coordinator(self._group)
        if broker is not None and self._world.is_running(broker):
            disturb_session(self._world, broker, rng)
