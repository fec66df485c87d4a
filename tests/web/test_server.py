"""The HTTP server's socket."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from typing import Any

import pytest
import uvicorn

from partage.web.server import bind_socket, make_server


@pytest.mark.parametrize("turns", range(5))
def test_web_server_shutdown_while_accepting_closes_the_connection(turns: int) -> None:
    """asyncio needs three turns from the accepted socket to the protocol."""

    async def shut_down_after_turns() -> None:
        listening = bind_socket("127.0.0.1", 0)
        server = make_server(_accept_lifespan)
        await _start(server, listening)
        with socket.create_connection(listening.getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.shutdown(sockets=[listening])
            assert not server.server_state.connections

    with (
        warnings.catch_warnings(record=True) as caught,
        asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,
    ):
        warnings.simplefilter("always", ResourceWarning)
        runner.run(shut_down_after_turns())
        gc.collect()  # an unclosed transport warns when it is collected
    assert [str(each.message) for each in caught] == []


async def _start(server: uvicorn.Server, listening: socket.socket) -> None:
    """Start a server as `uvicorn.Server.serve` does, without its loop of 0.1 s."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listening])
    assert server.started


async def _accept_lifespan(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "lifespan"
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
