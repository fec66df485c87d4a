"""Produce requests of one connection that complete in the same turn of the event loop.

They are so large that each has memory of the pool for large requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.broker.net.shared_resources import SharedResources
from partage.model.settings import ConnectionLimits
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from partage.wire.frames import FRAME_LENGTH, encode_request_frame
from partage.wire.types import Buffer
from polled_conditions import eventually_async

VERSION = 9
COUNT = 3
RECORDS = bytes(300_000)

Story = Callable[["Client"], Awaitable[None]]
Run = Callable[[Story], None]


class Client:
    """A connection to a server that keeps its requests, instead of handling them."""

    def __init__(self, server: Server, requests: list[InboundRequest]) -> None:
        self.server = server
        self.requests = requests
        self.memory = server.resources.memory_pool.available_bytes

    async def connect_and_send(self) -> None:
        """Send the requests, and wait until the server has them."""
        address = await self.server.listen("127.0.0.1", 0)
        self.server.serve({PRODUCE.key: self.requests.append})
        self._reader, self._writer = await asyncio.open_connection(*address)
        topic = ProduceTopic(
            name="t", partition_data=[ProducePartition(index=0, records=[RECORDS])]
        )
        body = PRODUCE.encode_request(
            VERSION, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
        )
        for number in range(COUNT):
            self._writer.writelines(encode_request_frame(PRODUCE, VERSION, number, "c", body))
        await eventually_async(lambda: len(self.requests) == COUNT)

    async def receive(self) -> int:
        """Return the correlation id of the next response."""
        async with asyncio.timeout(5):
            (size,) = FRAME_LENGTH.unpack(await self._reader.readexactly(FRAME_LENGTH.size))
            return int.from_bytes((await self._reader.readexactly(size))[:4], "big")

    async def is_closed(self) -> bool:
        """True if the server closes the connection, without another response."""
        async with asyncio.timeout(5):
            return await self._reader.read() == b""

    async def close(self) -> None:
        self._writer.close()
        await self.server.close()


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a story on each event loop; it fails if a callback of the loop fails."""

    async def connected(story: Story) -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, failed: failures.append(failed))
        client = Client(Server(ConnectionLimits(), Clock()), [])
        await client.connect_and_send()
        try:
            await story(client)
        finally:
            await client.close()
        assert not failures
        assert client.server.resources.memory_pool.available_bytes == client.memory

    def run_story(story: Story) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(connected(story))

    return run_story


def respond(inbound: InboundRequest) -> None:
    inbound.respond(ProduceResponse(responses=[]))


def test_their_responses_are_sent_with_one_write(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(client: Client) -> None:
        resources, writes = client.server.resources, []

        def send(transport: asyncio.Transport, parts: list[Buffer]) -> None:
            writes.append(parts)
            SharedResources.send(resources, transport, parts)

        monkeypatch.setattr(resources, "send", send)
        for inbound in client.requests:
            respond(inbound)
        assert [await client.receive() for _ in range(COUNT)] == list(range(COUNT))
        assert len(writes) == 1

    run(story)


def test_they_are_answered_in_order_of_arrival(run: Run) -> None:
    async def story(client: Client) -> None:
        first, second, third = client.requests
        respond(second)
        respond(third)
        await asyncio.sleep(0)
        respond(first)
        assert [await client.receive() for _ in range(COUNT)] == list(range(COUNT))

    run(story)


def test_complete_ones_are_answered_before_the_connection_is_closed(run: Run) -> None:
    async def story(client: Client) -> None:
        (connection,) = client.server.connections
        for inbound in client.requests[:2]:
            respond(inbound)
        connection.close()
        assert [await client.receive() for _ in range(2)] == [0, 1]
        assert await client.is_closed()
        respond(client.requests[2])  # its memory is in use until its records are written

    run(story)


def test_memory_is_released_if_the_connection_is_lost_before_the_responses(
    run: Run,
) -> None:
    async def story(client: Client) -> None:
        pool = client.server.resources.memory_pool
        (connection,) = client.server.connections
        assert pool.available_bytes < client.memory
        for inbound in client.requests[:2]:
            respond(inbound)
        assert connection._transport is not None
        connection._transport.abort()  # as if the network had failed
        for inbound in client.requests[2:]:
            respond(inbound)
        await eventually_async(lambda: not client.server.connections)
        await eventually_async(lambda: pool.available_bytes == client.memory)

    run(story)
