"""The simulated ZooKeeper, where it differs from the one in memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from partage.lab.environment.clock import Clock
from partage.lab.environment.coroutines import SimTask
from partage.lab.environment.zookeeper import SimZkSession, ZooKeeper
from partage.store.zookeeper import Create, SetData

PATHS = [f"/{number}" for number in range(20)]


def at_once(call: Callable[[], None]) -> None:
    call()


class Clients:
    """Two clients of one ensemble; ``found`` has the values that one of them read."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = Clock()
        servers = ZooKeeper(self.clock, Random(f"packets {seed}"), 50)
        self.reader, self.writer = (
            servers.open_session(name, 6_000, at_once) for name in ("a", "b")
        )
        self.found: list[bytes] = []

    def begin(self) -> None:
        SimTask(self._write(self.writer, [Create(path, b"old") for path in PATHS]), at_once)
        self.clock.run(1_000)

    async def _write(self, session: SimZkSession, operations: list[Create] | list[SetData]) -> None:
        await session.transact(operations)

    def read_while_all_is_written(self) -> None:
        SimTask(self._read(self.reader), at_once)
        SimTask(self._write(self.writer, [SetData(path, b"new") for path in PATHS]), at_once)
        self.clock.run(1_000)

    async def _read(self, session: SimZkSession) -> None:
        self.found = [node.data for node in await session.read_all(PATHS) if node is not None]


def test_read_all_is_not_atomic() -> None:
    found: set[bytes] = set()
    for seed in range(20):
        clients = Clients(seed)
        clients.begin()
        clients.read_while_all_is_written()
        assert len(clients.found) == len(PATHS)
        assert clients.found == sorted(clients.found, reverse=True), "reads are in order"
        found.add(b"".join(dict.fromkeys(clients.found)))
    assert found == {b"old", b"new", b"oldnew"}


def test_closed_session_ends_at_once() -> None:
    clients = Clients()
    me = Create("/me", b"", is_ephemeral=True)
    SimTask(clients._write(clients.writer, [me]), at_once)
    clients.clock.run(1_000)
    nodes = clients.reader._servers.nodes
    assert "/me" in nodes.nodes
    clients.writer.close()
    clients.clock.run(50)
    assert "/me" not in nodes.nodes
