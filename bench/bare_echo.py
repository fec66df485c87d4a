"""A server that returns each frame unchanged: the minimum of uvloop and the kernel.

The program prints its address and serves until it is killed.
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop


class Echo(asyncio.Protocol):
    """A connection. Clients wait for each response, so all received bytes are one frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the method that sends."""
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        """Return the bytes."""
        self._write(data)


async def serve() -> None:
    """Serve on a free port."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
