"""A connection to another broker of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from partage.broker.cluster.broker_node import BrokerNode
from partage.model.addresses import Address
from partage.wire.api import Api, Req, Res
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from partage.wire.primitives import MalformedError

#: Kafka's request.timeout.ms between brokers.
REQUEST_TIMEOUT_S: Final = 30.0
_LIVENESS_INTERVAL_S: Final = 0.5
_RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
#: What a request raises if the broker cannot be reached or does not answer correctly.
PEER_ERRORS: Final = (OSError, EOFError, ValueError)
#: What a request raises if the other broker has closed the connection.
_CLOSED_ERRORS: Final = (ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError)


class PeerConnection:
    """A connection for one request at a time; it is opened when it is needed.

    Args:
        client_id: the client id of requests.
        is_up: True if the broker with an id is live. A broker that is stopped keeps its
            connections, so a request ends when its broker is no longer live.
    """

    def __init__(self, client_id: str, is_up: Callable[[int], bool]) -> None:
        self._client_id = client_id
        self._is_up = is_up
        self._address: Address | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._correlation_id = 0

    async def request(
        self, node: BrokerNode, api: Api[Req, Res], version: int, message: Req
    ) -> Res:
        """Return the response of a broker.

        A broker closes idle connections (``connections.max.idle.ms``). If the connection was used
        before and turns out to be closed, the request is sent again on a new connection. So all
        requests must be idempotent.

        Raises:
            OSError, EOFError, ValueError: there is no response, or an invalid one. It is unknown
                whether the broker has handled the request.
        """
        try:
            if self._is_open_to(node):
                try:
                    return await self._attempt(node, api, version, message)
                except _CLOSED_ERRORS:
                    self.close()
            return await self._attempt(node, api, version, message)
        except BaseException:
            self.close()
            raise

    async def _attempt(
        self, node: BrokerNode, api: Api[Req, Res], version: int, message: Req
    ) -> Res:
        exchange = asyncio.ensure_future(self._exchange(node, api, version, message))
        try:
            return await self._wait(node, exchange)
        finally:
            exchange.cancel()

    async def _wait(self, node: BrokerNode, exchange: asyncio.Future[Res]) -> Res:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            while True:
                done, _ = await asyncio.wait([exchange], timeout=_LIVENESS_INTERVAL_S)
                if done:
                    return exchange.result()
                if not self._is_up(node.node_id):
                    raise ConnectionError(f"broker {node.node_id} is no longer live")

    async def _exchange(
        self, node: BrokerNode, api: Api[Req, Res], version: int, message: Req
    ) -> Res:
        reader, writer = await self._open(node)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        body = api.encode_request(version, message)
        frame = encode_request_frame(api, version, self._correlation_id, self._client_id, body)
        writer.writelines([bytes(part) for part in frame])
        await writer.drain()
        return await self._read_response(reader, api, version)

    async def _open(self, node: BrokerNode) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self._is_open_to(node):
            self.close()
            self._reader, self._writer = await asyncio.open_connection(node.host, node.port)
            self._address = Address(node.host, node.port)
        assert self._reader is not None
        assert self._writer is not None
        return self._reader, self._writer

    def _is_open_to(self, node: BrokerNode) -> bool:
        """True if the connection leads to this broker, and its close is not known."""
        return (
            self._address == (node.host, node.port)
            and self._reader is not None
            and not self._reader.at_eof()
            and self._writer is not None
            and not self._writer.is_closing()
        )

    async def _read_response(
        self, reader: asyncio.StreamReader, api: Api[Any, Res], version: int
    ) -> Res:
        (size,) = FRAME_LENGTH.unpack(await reader.readexactly(FRAME_LENGTH.size))
        if not 0 < size <= _RESPONSE_BYTES_MAX:
            raise MalformedError(f"invalid response size: {size} bytes")
        frame = await reader.readexactly(size)
        answers, pos = parse_response_header(api, version, frame)
        if answers != self._correlation_id:
            raise MalformedError(
                f"response has correlation id {answers}, expected {self._correlation_id}"
            )
        return api.decode_response(version, frame, pos)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
        self._address = self._reader = self._writer = None
