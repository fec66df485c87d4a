"""The listener."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack

from partage.broker.clock import Clock
from partage.broker.net.server import Server
from partage.model.settings import ConnectionLimits


def test_connection_burst_does_not_exhaust_descriptors() -> None:
    """Connections above the limit are closed as they arrive."""
    allowed, rush = 20, 100

    async def story() -> None:
        server = Server(ConnectionLimits(connections_max=allowed), Clock())
        address = await server.listen("127.0.0.1", 0)
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(rush)]
            before, most = descriptors(), 0
            for _ in range(rush):
                await asyncio.sleep(0)
                most = max(most, descriptors() - before)
            assert most < allowed + 40
            turned_away = clients[-1]
            turned_away.settimeout(5)
            assert await asyncio.to_thread(turned_away.recv, 1) == b""
            await server.close()

    asyncio.run(story())


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))
