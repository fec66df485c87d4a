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
from partage.broker.net.server import Server, _set_send_buffer
from partage.model.settings import SYSTEM_BUFFER, ConnectionLimits
from polled_conditions import eventually_async

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


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


async def accepted_send_buffer(size: int) -> int:
    """Return the send buffer of a socket that a server with this setting accepts."""
    server = Server(ConnectionLimits(send_buffer_bytes=size), Clock())
    address = await server.listen("127.0.0.1", 0)
    _, client = await asyncio.open_connection(*address)
    await eventually_async(lambda: server.connections)
    (accepted,) = server.connections
    assert accepted._transport is not None
    at_broker = accepted._transport.get_extra_info("socket")
    found = at_broker.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    client.close()
    await server.close()
    return int(found)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_accepted_sockets_have_the_send_buffer_of_the_setting(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    size = 64 * 1024
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        expected = probe.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(accepted_send_buffer(size)) == expected


@pytest.mark.parametrize("new_loop", LOOPS)
def test_send_buffer_may_be_left_to_the_system(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as plain,
        socket.create_connection(plain.getsockname()),
        plain.accept()[0] as accepted,
    ):
        expected = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(accepted_send_buffer(SYSTEM_BUFFER)) == expected


def test_send_buffer_that_the_system_refuses_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = socket.socket()
    closed.close()  # Linux refuses no size of an open socket; macOS refuses large ones
    _set_send_buffer(closed, 4096)
    assert "socket.send.buffer.bytes=4096 is refused" in caplog.text


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("new_loop", LOOPS)
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
