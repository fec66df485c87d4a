"""The broker's end of a connection: it serves requests one at a time, in order."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from partage.bridge import ApiCall
from partage.lab import history
from partage.lab.brokers.shell import BrokerShell
from partage.lab.environment.network import SimConnection
from partage.lab.names import GROUPS
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.frames import (
    FRAME_LENGTH,
    encode_response_frame,
    parse_request_header,
    parse_request_prefix,
    parse_response_header,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer, Message

_FRAME_BYTES_MAX: Final = 1 << 24


class ServedRequest(ApiCall[Any]):
    """A request that the broker is serving."""

    __slots__ = ("api", "connection", "correlation_id", "entry")

    def respond(self, message: Message) -> None:
        """Send a response message, encoded in the request's API version."""
        self.connection.respond(self, self.api.encode_response(self.version, message))

    api: AnyApi
    connection: ServerConnection
    correlation_id: int
    entry: history.RequestReceived


class RequestHandler(Protocol):
    """Handles the requests of connections."""

    def has_loaded(self, group_id: str) -> bool:
        """Return True if the shard of a group is loaded."""

    def handle_request(self, inbound: ServedRequest) -> None:
        """Handle a request. The response may be sent later."""

    def on_connection_closed(self, connection: ServerConnection) -> None:
        """Forget a closed connection."""


class ServerConnection:
    """The broker's end of one client connection.

    Args:
        broker: The broker's process.
        connection: The connection of the network.
        handler: Handles the requests.
    """

    def __init__(
        self, broker: BrokerShell, connection: SimConnection, handler: RequestHandler
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._handler = handler
        self._tail = b""
        self._backlog: deque[tuple[bytes, int]] = deque()
        self._served: ServedRequest | None = None
        self._is_open = True

    def data_received(self, data: bytes) -> None:
        """Read received bytes, after the pause if the process is paused."""
        arrived_ms = self._broker.world.now_ms
        self._broker.when_awake(lambda: self._read(data, arrived_ms))

    def connection_lost(self) -> None:
        """Handle the loss of the connection. Group requests in progress continue."""
        self._broker.when_awake(self._lose)

    def _lose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._backlog.clear()
            self._handler.on_connection_closed(self)

    def close(self) -> None:
        """Close the connection."""
        if self._is_open:
            self._lose()
            self._connection.close_from_broker()

    def on_process_died(self) -> None:
        """Close the connection as the operating system does after the process died."""
        self._is_open = False
        self._connection.close_from_broker()

    def _read(self, data: bytes, arrived_ms: int) -> None:
        if not self._is_open:
            return
        data = self._tail + data if self._tail else data
        pos = 0
        while len(data) - pos >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(data, pos)
            if not 0 < size <= _FRAME_BYTES_MAX:
                self.close()
                return
            start = pos + FRAME_LENGTH.size
            if size > len(data) - start:
                break
            self._backlog.append((data[start : start + size], arrived_ms))
            pos = start + size
        self._tail = data[pos:]
        self._serve_next()

    def _serve_next(self) -> None:
        while self._served is None and self._backlog and self._is_open:
            self._begin(*self._backlog.popleft())

    def _begin(self, frame: bytes, arrived_ms: int) -> None:
        world = self._broker.world
        try:
            start = parse_request_prefix(frame)
            api = APIS.get(start.api_key)
            if api is None or not api.supports(start.api_version):
                self.close()
                return
            client_id, pos = parse_request_header(api, start.api_version, frame)
            message = api.decode_request(start.api_version, frame, pos)
        except MalformedError:
            world.record_incident("a malformed request arrived", self._connection.client)
            self.close()
            return
        inbound = ServedRequest(start.api_version, message, client_id or "", "/lab", world.now_ms)
        inbound.api = api
        inbound.connection = self
        inbound.correlation_id = start.correlation_id
        inbound.entry = world.record_request(
            self._connection,
            arrived_ms,
            api.key,
            start.api_version,
            message,
            broker_id=self._broker.broker_id,
            is_loaded=self._handler.has_loaded(_request_group_id(message)),
        )
        self._served = inbound
        self._handler.handle_request(inbound)

    def respond(self, inbound: ServedRequest, body: list[Buffer]) -> None:
        """Send the response to the current request, then serve the next one."""
        world, api = self._broker.world, inbound.api
        header_version = api.response_header_version(inbound.version)
        frame = b"".join(encode_response_frame(header_version, inbound.correlation_id, body))
        content = memoryview(frame)[FRAME_LENGTH.size :]
        _, pos = parse_response_header(api, inbound.version, content)
        message = api.decode_response(inbound.version, content, pos)
        world.record_response(inbound.entry, message)
        if self._is_open:
            self._connection.down.send(frame)
        if self._served is inbound:
            self._served = None
            if self._backlog:  # not from here: the shard may be sending other replies
                self._broker.when_awake(lambda: world.clock.call_later(0, self._serve_awake))

    def _serve_awake(self) -> None:
        self._broker.when_awake(self._serve_next)


def _request_group_id(message: Any) -> str:
    """Return the group id of a request, the first of several; a default where it names none."""
    # OffsetFetch has `groups` from v8 on. In DescribeGroups and DeleteGroups they are names.
    groups = getattr(message, "groups", ()) or getattr(message, "groups_names", ())
    group_id = getattr(groups[0], "group_id", groups[0]) if groups else ""
    return group_id or getattr(message, "group_id", "") or GROUPS[0]
