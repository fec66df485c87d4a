"""A request, from its arrival until its response is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from partage.bridge import ApiCall
from partage.wire.api import AnyApi
from partage.wire.frames import encode_response_frame
from partage.wire.types import Buffer, Message

if TYPE_CHECKING:
    from partage.broker.net.connection import Connection


class InboundRequest(ApiCall[Any]):
    """A decoded request.

    Exactly one call of `respond`, `respond_encoded` or `complete_without_response` ends it.
    """

    __slots__ = ("api", "connection", "correlation_id", "is_done", "response_buffers")

    def __init__(
        self,
        connection: Connection,
        api: AnyApi,
        version: int,
        correlation_id: int,
        client_id: str,
        message: Any,
        at_ms: int,
    ) -> None:
        super().__init__(version, message, client_id, connection.client_host, at_ms)
        self.connection = connection
        self.api = api
        self.correlation_id = correlation_id
        self.response_buffers: list[Buffer] = []
        self.is_done = False

    def respond(self, message: Message) -> None:
        """Send a response, encoded in the version of the request."""
        self.respond_encoded(self.api.encode_response(self.version, message))

    def respond_encoded(self, body: list[Buffer]) -> None:
        """Send a response body that is already encoded."""
        header_version = self.api.response_header_version(self.version)
        assert not self.is_done, f"{self.api} has two responses"
        self.response_buffers = encode_response_frame(header_version, self.correlation_id, body)
        self.is_done = True
        self.connection.on_response_ready()

    def complete_without_response(self) -> None:
        """End the request without a response: Produce with acks=0."""
        assert not self.is_done, f"{self.api} has two responses"
        self.is_done = True
        self.connection.on_response_ready()


Handler = Callable[[InboundRequest], None]
