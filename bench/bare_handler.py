"""Our broker's connections without a state machine: the minimum cost of a Heartbeat or commit.

The broker's own code splits frames, decodes headers and bodies, and encodes and sends responses.
The handler always returns success. The program prints its address and serves until it is killed.
"""

from __future__ import annotations

import asyncio

import uvloop

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.model.settings import ConnectionLimits
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT, OffsetCommitResponse


async def serve() -> None:
    """Serve Heartbeats, and commits with an empty response."""
    heartbeat = HEARTBEAT.encode_response(4, HeartbeatResponse(error_code=0))
    commit = OFFSET_COMMIT.encode_response(8, OffsetCommitResponse(topics=[]))
    server = Server(ConnectionLimits(), Clock())
    host, port = await server.listen("127.0.0.1", 0)

    def handle_heartbeat(inbound: InboundRequest) -> None:
        inbound.respond_encoded(heartbeat)

    def handle_commit(inbound: InboundRequest) -> None:
        inbound.respond_encoded(commit)

    server.serve({HEARTBEAT.key: handle_heartbeat, OFFSET_COMMIT.key: handle_commit})
    print(f"{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
