"""The ZooKeeper of a world: that of `partage.lab`, on the loop and the network of the world.

Brokers use it through `partage.broker.cluster.cluster_session.ClusterSession`, in place of kazoo.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Final

from partage.broker.clock import Clock
from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.broker.cluster.state_address import StateAddress
from partage.lab.brokers.zookeeper_session import SimulatedSession
from partage.lab.environment.zookeeper import ZooKeeper
from partage.model.settings import BrokerSettings
from partage.store.memory import MemorySession
from partage.testing.world.network import WorldNetwork
from partage.testing.world.patches import START_WALL_S
from partage.testing.world.process import current_process
from partage.testing.world.story import Story
from partage.testing.world.virtual_loop import VirtualLoop

#: The host of the servers.
ZOOKEEPER: Final = "zookeeper"
#: How long a broker tries to connect, as with kazoo, in seconds.
_CONNECT_TIMEOUT_S: Final = 10.0


class _ServerClock:
    """The clock of the servers, which belong to no process."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    @property
    def now_ms(self) -> int:
        """The wall clock of the world, in ms."""
        return START_WALL_S * 1000 + int(self._loop.elapsed_s * 1000)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after a delay."""
        self._loop.call_later(delay_ms / 1000, call, context=contextvars.Context())


class WorldZooKeeper(ZooKeeper):
    """The ZooKeeper servers of a world, at the host ``zookeeper``.

    Args:
        loop: the loop of the world.
        network: its cuts and latencies also apply to sessions.
        story: gets a line for each session that expires.
        rng: decides whether requests of lost connections arrive late.
    """

    def __init__(self, loop: VirtualLoop, network: WorldNetwork, story: Story, rng: Random) -> None:
        self.loop = loop
        self.network = network
        self._story = story
        self._held: list[tuple[str, Callable[[], None]]] = []
        super().__init__(_ServerClock(loop), rng, delay_max_ms=0)

    async def begin_session(
        self, address: StateAddress, settings: BrokerSettings
    ) -> SimulatedSession:
        """Begin a session of the running process; see `BeginSession`."""
        process = current_process.get()
        assert process is not None, "only brokers have sessions"
        started_ms = Clock().boot_ms()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self.network.wait_for_path(process.name, ZOOKEEPER)
        except TimeoutError:
            raise ZooKeeperUnreachableError(
                f"no ZooKeeper server answers at {address.servers}"
            ) from None
        await asyncio.sleep(self.network.latency_s())

        def call_in_process(call: Callable[[], None]) -> None:
            self.loop.call_soon(call, context=self.network.context_of(process))

        return SimulatedSession(
            self,
            process.name,
            settings.zookeeper_session_timeout_ms,
            started_ms,
            self.loop,
            call_in_process,
        )

    def delay_ms(self) -> int:
        """Return the delay of a packet, from the latency of the world's network."""
        return round(self.network.latency_s() * 1000)

    def cut_for_ms(self, client: str) -> int:
        """Return more than 0 if a client is cut off; its end is not known."""
        return int(self.network.is_cut(client, ZOOKEEPER))

    def when_reachable(self, client: str, call: Callable[[], None]) -> None:
        """Call a function now, or when `release_held` finds that the cut has ended."""
        if self.cut_for_ms(client):
            self._held.append((client, call))
        else:
            call()

    def release_held(self) -> None:
        """Let packets arrive whose cut has ended."""
        held, self._held = self._held, []
        for client, call in held:
            self.when_reachable(client, call)

    def _expire(self, inner: MemorySession) -> None:
        self._story.note(ZOOKEEPER, f"the session of {self._clients[inner]} expired")
        super()._expire(inner)
