"""A connection to another broker of the cluster."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.peer_frames import encode_peer_request, read_peer_response
from partage.model.addresses import Address
from partage.wire.api import Api, Req, Res

#: Kafka's request.timeout.ms between brokers.
REQUEST_TIMEOUT_S: Final = 30.0
_LIVENESS_INTERVAL_S: Final = 0.5
_RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
#: SO_LINGER with a time of 0: the system drops unsent bytes and resets the connection.
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)
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
            self._reset()
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
        frame = encode_peer_request(api, version, self._correlation_id, self._client_id, message)
        writer.writelines(frame)
        await writer.drain()
        return await read_peer_response(
            reader, api, version, self._correlation_id, _RESPONSE_BYTES_MAX
        )

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

    def _reset(self) -> None:
        """Close the connection, and drop what was not sent.

        After an ordinary close the system would go on to send it. A marker that arrives after its
        repetition could end the next transaction of a producer from before KIP-890.
        """
        if self._writer is not None:
            # If the other broker has reset it, uvloop has no socket, and asyncio a closed one.
            connection: socket.socket | None = self._writer.get_extra_info("socket")
            if connection is not None:
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self._writer.transport.abort()
        self._address = self._reader = self._writer = None

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
        self._address = self._reader = self._writer = None
