"""The listener."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
import uvloop

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


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_server_close_while_accepting_closes_the_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    """asyncio needs three turns from the accepted socket to `connection_made`."""

    async def close_after_turns() -> None:
        server = Server(ConnectionLimits(), Clock())
        address = await server.listen("127.0.0.1", 0)
        with socket.create_connection(address) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            assert server.connections == []
            gc.collect()  # an unclosed transport warns when it is collected
            client.setblocking(False)
            with suppress(ConnectionResetError):  # the broker had not accepted it
                assert client.recv(1) == b""

    with warnings.catch_warnings(record=True) as caught, asyncio.Runner(loop_factory=new_loop) as r:
        warnings.simplefilter("always")
        r.run(close_after_turns())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))
