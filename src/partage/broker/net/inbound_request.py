"""A request, from its arrival until its response is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from partage.bridge import ApiAdapter, ApiCall
from partage.bridge.api_adapter import BrokerContext
from partage.broker.net.repeated_request import RepeatedRequest
from partage.coordinator.events import Request
from partage.wire.api import AnyApi
from partage.wire.frames import encode_response_frame
from partage.wire.types import Buffer, Message


class RequestConnection(Protocol):
    """The connection of a request, as handlers use it."""

    client_host: str
    #: Called when the connection is lost; set by a request that waits for data.
    on_lost: Callable[[], None] | None

    @property
    def response_bytes_max(self) -> int:
        """Maximum size of the next response."""

    def on_response_ready(self) -> None:
        """Continue: a request of this connection has its response."""

    def close_for_error(self, why: str) -> None:
        """Close the connection because of a client error, and log the reason."""

    def close(self) -> None:
        """Close the connection; responses that were sent still arrive."""


class InboundRequest(ApiCall[Any]):
    """A decoded request.

    A request that its client may repeat has a `RepeatedRequest`, which saves work.

    Exactly one call of a ``respond`` method or of `complete_without_response` ends it.
    """

    __slots__ = ("api", "connection", "correlation_id", "is_done", "repeated", "response_buffers")

    def __init__(
        self,
        connection: RequestConnection,
        api: AnyApi,
        version: int,
        correlation_id: int,
        client_id: str,
        message: Any,
        at_ms: int,
        repeated: RepeatedRequest | None = None,
    ) -> None:
        # The attributes of `ApiCall`: a call of its initializer takes as long as all of these.
        self.version = version
        self.message = message
        self.client_id = client_id
        self.client_host = connection.client_host
        self.at_ms = at_ms
        self.connection = connection
        self.api = api
        self.correlation_id = correlation_id
        self.response_buffers: list[Buffer] = []
        self.is_done = False
        self.repeated = repeated

    def start(
        self, exchange: ApiAdapter[Any, Any], broker_context: BrokerContext, fresh_id: str = ""
    ) -> Sequence[Request]:
        """Convert the request to events; a repeated one has a single event."""
        repeated = self.repeated
        if repeated is None or fresh_id:
            return super().start(exchange, broker_context, fresh_id)
        event = repeated.event(self.at_ms, self)
        if event is None:
            (event,) = super().start(exchange, broker_context)
            repeated.keep_event(event)
            return [event]
        # The attributes that `ApiCall.start` sets, and that adapters of repeated requests read.
        self.adapter = exchange
        self.broker = broker_context
        self.missing_replies = 1
        self.replies = [None]
        return [event]

    def repeat_response(self, reply: Any) -> bool:
        """Send the last response of a repeated request again, if it got the same reply.

        Returns:
            False if it must be encoded.
        """
        if self.repeated is None:
            return False
        response = self.repeated.response(reply, self.correlation_id)
        if response is None:
            return False
        assert not self.is_done, f"{self.api} has two responses"
        self.response_buffers = [response]
        self.is_done = True
        self.connection.on_response_ready()
        return True

    def respond_with_replies(self) -> None:
        """Send the response for the replies, once none is missing."""
        body = self.encode_response()
        if self.repeated is not None:
            self.repeated.keep_response(self.replies[0], body)
        self.respond_encoded(body)

    def respond(self, message: Message) -> None:
        """Send a response, encoded in the version of the request."""
        self.respond_encoded(self.api.encode_response(self.version, message))

    def respond_encoded(self, body: list[Buffer]) -> None:
        """Send a response body that is already encoded."""
        header_version = self.api.response_header_version(self.version)
        self._complete(encode_response_frame(header_version, self.correlation_id, body))

    def complete_without_response(self) -> None:
        """End the request without a response: Produce with acks=0."""
        self._complete([])

    def _complete(self, response_buffers: list[Buffer]) -> None:
        assert not self.is_done, f"{self.api} has two responses"
        self.response_buffers = response_buffers
        self.is_done = True
        self.connection.on_response_ready()


Handler = Callable[[InboundRequest], None]
