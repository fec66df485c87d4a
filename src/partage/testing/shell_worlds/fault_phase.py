"""The faults of one world, besides those that `PartageWorld.draw_faults` draws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Final

from partage.lab.environment.disk import IO_ERRORS
from partage.testing.shell_worlds.admin import WorldAdmin
from partage.testing.shell_worlds.reader import Reader
from partage.testing.shell_worlds.scenario import ShellScenario
from partage.testing.shell_worlds.session_fault import disturb_session
from partage.testing.world.fault_injection import CONNECTION_FAULTS
from partage.testing.world.world import PartageWorld

_DISK_FAULTS: Final = tuple(sorted(IO_ERRORS))
#: A reader may be paused or cut off while it closes.
_RESTART_S: Final = 300.0
#: A heartbeat is up to a second old when a pause begins.
_SHORTER_S: Final = 1.2


class FaultPhase:
    """The faults of one world.

    Args:
        world: The world.
        scenario: Its options.
        readers: The reader processes, by name.
        groups: The groups of all readers.
        rng: Draws the kills of brokers.
        on_removed: Called with the process of each member that an administrator removes, before.
    """

    def __init__(
        self,
        world: PartageWorld,
        scenario: ShellScenario,
        readers: Mapping[str, Reader],
        groups: Collection[str],
        rng: Random,
        on_removed: Callable[[str], None],
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._readers = readers
        self._groups = groups
        self._rng = rng
        self._on_removed = on_removed

    async def run(self) -> None:
        """Cause all faults, and wait until the last one has begun."""
        await asyncio.gather(
            self._kill_broker(),
            self._restart_readers(),
            self._pause_for_a_session(),
            self._fail_connections(),
            self._fail_disks(),
            self._fail_sessions(),
            self._remove_members(),
        )

    async def _kill_broker(self) -> None:
        """Kill the broker now and then while the faults happen, and wait for their end."""
        world, rng, scenario = self._world, self._rng, self._scenario
        begin_s = world.elapsed_s
        within_s = scenario.faults_within_s
        for after_s in sorted(rng.uniform(0, within_s) for _ in range(scenario.broker_kills)):
            await asyncio.sleep(max(0, begin_s + after_s - world.elapsed_s))
            broker = rng.choice(world.brokers)
            world.kill(broker)
            await asyncio.sleep(rng.choice((0.05, 0.5, 3)))
            if not world.is_running(broker):
                world.restart(broker)
        await asyncio.sleep(max(0, begin_s + within_s - world.elapsed_s))

    async def _restart_readers(self) -> None:
        """Let readers close and start again, one after the other, as in a rolling restart."""
        world, scenario = self._world, self._scenario
        rng = Random(f"restarts {scenario.seed}")
        for _ in range(scenario.restarts):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.restarts))
            name = rng.choice(sorted(self._readers))
            reader = self._readers[name]
            reader.is_stopped = True
            await self._wait_for_end(name)
            reader.is_stopped = False
            if not world.is_running(name):
                world.restart(name)

    async def _pause_for_a_session(self) -> None:
        """Pause readers until their session may have ended."""
        world, scenario = self._world, self._scenario
        rng = Random(f"pauses {scenario.seed}")
        for _ in range(scenario.short_pauses):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.short_pauses))
            name = rng.choice(sorted(self._readers))
            options = scenario.readers[name].options
            session_s = options.get("session_timeout_ms", 0) / 1000
            if session_s:
                world.pause(name, session_s - rng.uniform(-0.2, _SHORTER_S))

    async def _fail_connections(self) -> None:
        """Let single connections of readers fail."""
        world, scenario = self._world, self._scenario
        rng = Random(f"connections {scenario.seed}")
        for _ in range(scenario.connection_faults):
            await asyncio.sleep(
                rng.uniform(0, scenario.faults_within_s / scenario.connection_faults)
            )
            name = rng.choice(sorted(self._readers))
            kind = rng.choice(CONNECTION_FAULTS)
            world.fail_connection(name, kind, rng, for_s=rng.choice((0.5, 3, 10)))

    async def _fail_disks(self) -> None:
        """Let disks of brokers fail for some time."""
        world, scenario = self._world, self._scenario
        rng = Random(f"disks {scenario.seed}")
        for _ in range(scenario.disk_faults):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.disk_faults))
            operation, code = rng.choice(_DISK_FAULTS)
            for_s = rng.choice((0.2, 2, 6))
            world.fail_disk(rng.choice(world.brokers), operation, code, for_s)

    async def _fail_sessions(self) -> None:
        """Disturb the ZooKeeper sessions of coordinators."""
        world, scenario = self._world, self._scenario
        count = scenario.session_faults if len(world.brokers) > 1 else 0
        rng = Random(f"sessions {scenario.seed}")
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / count))
            broker = world.coordinator(rng.choice(sorted(self._groups)))
            if broker is not None and world.is_running(broker):
                disturb_session(world, broker, rng)

    async def _remove_members(self) -> None:
        """Let an administrator remove members."""
        world, scenario = self._world, self._scenario
        rng = Random(f"removals {scenario.seed}")
        for _ in range(scenario.removals):
            await asyncio.sleep(rng.uniform(0, scenario.faults_within_s / scenario.removals))
            group = rng.choice(sorted(self._groups))
            await WorldAdmin(world).remove_member(group, rng, self._on_removed)

    async def _wait_for_end(self, name: str) -> None:
        await self._world.until(lambda: not self._world.is_running(name), timeout_s=_RESTART_S)
