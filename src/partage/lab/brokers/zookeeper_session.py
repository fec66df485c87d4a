"""A session of a production broker with the simulated ZooKeeper of `partage.lab`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from partage.lab.environment.coroutines import SimFuture, WhenAwake
from partage.lab.environment.zookeeper import SimZkSession, ZooKeeper
from partage.store.zookeeper import ChangeCallback, Operation, SessionEndedError, ZNode

T = TypeVar("T")


class SimulatedSession:
    """A session of a broker; see `partage.broker.cluster.cluster_session.ClusterSession`.

    The client side runs in the broker's process, so it stops while the process is paused. As with
    kazoo, requests wait while the session is not connected.

    Args:
        servers: The ZooKeeper.
        client: The name of the broker as a client.
        timeout_ms: The session timeout.
        started_ms: The time before the session started.
        loop: The loop of the broker.
        when_awake: Calls a function in the broker's process: later if it is paused, never if it is
            killed.
    """

    def __init__(
        self,
        servers: ZooKeeper,
        client: str,
        timeout_ms: int,
        started_ms: int,
        loop: asyncio.AbstractEventLoop,
        when_awake: WhenAwake,
    ) -> None:
        self.on_suspended: Callable[[], None] = _no_op
        self.on_connected: Callable[[], None] = _no_op
        self.on_ended: Callable[[], None] = _no_op
        self.on_leader_answered: Callable[[int], None] = lambda sent_ms: None
        self.on_children_read: Callable[[str, list[str]], None] = lambda path, names: None
        self.started_ms = started_ms
        self._loop = loop
        self._pending: dict[asyncio.Future[None], None] = {}
        self._inner: SimZkSession = servers.open_session(client, timeout_ms, when_awake)
        self._inner.on_suspended = lambda: self.on_suspended()
        self._inner.on_connected = lambda: self.on_connected()
        self._inner.on_over = self._on_over
        self._inner.on_leader_answered = lambda sent_ms: self.on_leader_answered(sent_ms)

    @property
    def timeout_ms(self) -> int:
        """The session timeout."""
        return self._inner.timeout_ms

    @property
    def session_id(self) -> int:
        """The id that the session's ephemeral nodes carry."""
        return self._inner.session_id

    def abandon(self) -> None:
        """Stop without closing the session, because the process died."""
        self._inner.abandon()

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
        names = await self._run(self._inner.children(path, changed))
        self.on_children_read(path, names)
        return names

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
