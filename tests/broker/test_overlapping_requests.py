"""Produce requests of one connection that complete in the same turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.broker.net.shared_resources import SharedResources
from partage.model.settings import ConnectionLimits
from partage.wire.apis.produce import PRODUCE, ProduceRequest, ProduceResponse
from partage.wire.frames import FRAME_LENGTH, encode_request_frame
from partage.wire.types import Buffer
from polled_conditions import eventually_async

VERSION = 9
COUNT = 3


class Client:
    """A connection to a server that keeps its requests, instead of handling them."""

    def __init__(self, server: Server, requests: list[InboundRequest]) -> None:
        self.server = server
        self.requests = requests

    async def connect_and_send(self) -> None:
        """Send the requests, and wait until the server has them."""
        address = await self.server.listen("127.0.0.1", 0)
        self.server.serve({PRODUCE.key: self.requests.append})
        self._reader, self._writer = await asyncio.open_connection(*address)
        body = PRODUCE.encode_request(
            VERSION, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[])
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


def run(story: Callable[[Client], Awaitable[None]]) -> None:
    async def connected() -> None:
        client = Client(Server(ConnectionLimits(), Clock()), [])
        await client.connect_and_send()
        await story(client)
        await client.close()

    asyncio.run(connected())


def respond(inbound: InboundRequest) -> None:
    inbound.respond(ProduceResponse(responses=[]))


def test_their_responses_are_sent_with_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_they_are_answered_in_order_of_arrival() -> None:
    async def story(client: Client) -> None:
        first, second, third = client.requests
        respond(second)
        respond(third)
        await asyncio.sleep(0)
        respond(first)
        assert [await client.receive() for _ in range(COUNT)] == list(range(COUNT))

    run(story)


def test_complete_ones_are_answered_before_the_connection_is_closed() -> None:
    async def story(client: Client) -> None:
        (connection,) = client.server.connections
        for inbound in client.requests[:2]:
            respond(inbound)
        connection.close()
        assert [await client.receive() for _ in range(2)] == [0, 1]
        assert await client.is_closed()

    run(story)


def test_a_lost_connection_with_complete_ones_is_closed() -> None:
    async def story(client: Client) -> None:
        (connection,) = client.server.connections
        for inbound in client.requests[:2]:
            respond(inbound)
        connection.abort()
        await eventually_async(lambda: not client.server.connections)

    run(story)
