"""The broker's connections with no core behind them: what a Heartbeat costs at the very least.

Frames are split, headers and bodies decoded, answers encoded and sent by the broker's own code;
the handler says yes without looking. Prints its address, and serves until it is killed.
"""

from __future__ import annotations

import asyncio

import uvloop

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.model.settings import ConnectionLimits
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse


async def serve() -> None:
    """Serve Heartbeats."""
    yes = HEARTBEAT.encode_response(4, HeartbeatResponse(error_code=0))
    server = Server(ConnectionLimits(), Clock())
    host, port = await server.listen("127.0.0.1", 0)

    def beat(inbound: InboundRequest) -> None:
        inbound.respond_encoded(yes)

    server.serve({HEARTBEAT.key: beat})
    print(f"{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
