"""A broker that a test starts in a simulated cluster, besides the brokers of the world."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from partage.broker.broker import Broker
from partage.broker.cluster.facade import ClusterJoinError
from partage.log.disk import Disk
from partage.log.memory_disk import MemoryDisk
from partage.model.addresses import Address
from partage.testing import PartageWorld
from partage.testing.world.brokers import _STATE

_PORT: Final = 9092


class GuestBroker:
    """A broker in a separate process of a world; it may have the id of another broker.

    Attributes:
        disk: its data, which survives `stop`.
    """

    def __init__(
        self,
        world: PartageWorld,
        broker_id: int,
        disk: Disk | None = None,
        advertised: Address | None = None,
    ) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self._world = world
        self._name = f"guest-{broker_id}"
        self._settings = msgspec.structs.replace(world._brokers._settings, node_id=broker_id)
        self._advertised = advertised
        self._stop: asyncio.Event

    async def start(self) -> str:
        """Return "" once it serves requests, or the reason of its refusal."""
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        zookeeper = self._world._zookeeper
        assert zookeeper is not None

        async def serve() -> None:
            try:
                broker = await Broker.start(
                    self.disk,
                    self._settings,
                    host=self._name,
                    port=_PORT,
                    advertised=self._advertised,
                    state=_STATE,
                    begin_session=zookeeper.begin_session,
                )
            except ClusterJoinError as error:
                outcome.set_result(str(error))
                return
            outcome.set_result("")
            await self._stop.wait()
            await broker.stop()

        self._world.process(serve, name=self._name)
        refusal = await outcome
        if refusal:
            await self._wait_ended()
        return refusal

    async def stop(self) -> None:
        """Stop it cleanly."""
        self._stop.set()
        await self._wait_ended()

    async def _wait_ended(self) -> None:
        await self._world.until(lambda: not self._world.is_running(self._name))
