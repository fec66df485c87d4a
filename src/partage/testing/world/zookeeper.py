"""The ZooKeeper of a world: that of `partage.lab`, on the loop and the network of the world.

Brokers use it through `partage.broker.cluster.cluster_session.ClusterSession`, in place of kazoo.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.broker.cluster.lease_renewal import boot_ms
from partage.broker.cluster.state_address import StateAddress
from partage.lab.environment.coroutines import SimFuture
from partage.lab.environment.zookeeper import SimZkSession, ZooKeeper
from partage.model.settings import BrokerSettings
from partage.store.memory import MemorySession
from partage.store.zookeeper import ChangeCallback, Operation, SessionEndedError, ZNode
from partage.testing.world.network import WorldNetwork
from partage.testing.world.patches import START_WALL_S
from partage.testing.world.process import WorldProcess, current_process
from partage.testing.world.story import Story
from partage.testing.world.virtual_loop import VirtualLoop

T = TypeVar("T")

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

    async def begin_session(self, address: StateAddress, settings: BrokerSettings) -> WorldSession:
        """Begin a session of the running process; see `BeginSession`."""
        process = current_process.get()
        assert process is not None, "only brokers have sessions"
        started_ms = boot_ms()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self.network.wait_for_path(process.name, ZOOKEEPER)
        except TimeoutError:
            raise ZooKeeperUnreachableError(
                f"no ZooKeeper server answers at {address.servers}"
            ) from None
        await asyncio.sleep(self.network.latency_s())
        return WorldSession(self, process, settings.zookeeper_session_timeout_ms, started_ms)

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


class WorldSession:
    """A session of a broker; see `partage.broker.cluster.cluster_session.ClusterSession`.

    The client side runs in the broker's process, so it stops while the process is paused. As with
    kazoo, requests wait while the session is not connected.
    """

    def __init__(
        self, servers: WorldZooKeeper, process: WorldProcess, timeout_ms: int, started_ms: int
    ) -> None:
        self.on_suspended: Callable[[], None] = _no_op
        self.on_connected: Callable[[], None] = _no_op
        self.on_ended: Callable[[], None] = _no_op
        self.started_ms = started_ms
        self._loop, self._network, self._process = servers.loop, servers.network, process
        self._pending: dict[asyncio.Future[None], None] = {}
        self._inner: SimZkSession = servers.open_session(
            process.name, timeout_ms, self._call_in_process
        )
        self._inner.on_suspended = lambda: self.on_suspended()
        self._inner.on_connected = lambda: self.on_connected()
        self._inner.on_over = self._on_over

    def _call_in_process(self, call: Callable[[], None]) -> None:
        """Call a function in the process: later if it is paused, never if it is killed."""
        self._loop.call_soon(call, context=self._network.context_of(self._process))

    @property
    def timeout_ms(self) -> int:
        """The session timeout."""
        return self._inner.timeout_ms

    @property
    def session_id(self) -> int:
        """The id that the session's ephemeral nodes carry."""
        return self._inner.session_id

    async def end(self) -> None:
        """Close the session."""
        self.on_ended = self.on_suspended = self.on_connected = _no_op
        self._inner.close()
        self._fail_pending()
        await asyncio.sleep(0)

    def _on_over(self) -> None:
        self._fail_pending()
        on_over, self.on_ended = self.on_ended, _no_op
        on_over()

    def _fail_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for moment in pending:
            if not moment.done():
                moment.set_exception(SessionEndedError("the ZooKeeper session has ended"))

    async def wait_connected(self) -> None:
        """Return once there is a connection."""
        await self._run(self._inner.wait_connected())

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, or none."""
        await self.wait_connected()
        await self._run(self._inner.transact(operations))

    async def read(self, path: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return the node, or None if it does not exist."""
        await self.wait_connected()
        return await self._run(self._inner.read(path, changed))

    async def read_all(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Return the nodes, requested at once."""
        await self.wait_connected()
        return await self._run(self._inner.read_all(paths))

    async def children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        """Return the sorted names of the children."""
        await self.wait_connected()
        return await self._run(self._inner.children(path, changed))

    async def ping_leader(self) -> None:
        """Return once the leader has replied."""
        await self.wait_connected()
        await self._run(self._inner.ping_leader())

    async def _run(self, work: Coroutine[SimFuture[Any], None, T]) -> T:
        """Run a coroutine of the simulated session, which awaits its own futures."""
        try:
            while True:
                moment = work.send(None)
                done = self._loop.create_future()
                self._pending[done] = None
                moment.set_done_callback(partial(_set_done, done))
                try:
                    await done
                finally:
                    self._pending.pop(done, None)
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            work.close()


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _no_op() -> None:
    """Do nothing."""
