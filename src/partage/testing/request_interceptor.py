"""Interception of requests to a test's broker: errors, held and changed responses."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from partage.bridge import API_ADAPTERS
from partage.bridge.api_adapter import BrokerContext
from partage.broker.net.connection import Connection
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.coordinator.events import Heartbeat
from partage.coordinator.replies import HeartbeatReply
from partage.coordinator.unavailable_replies import error_reply
from partage.model.errors import ErrorCode
from partage.wire.apis import APIS
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from partage.wire.frames import FRAME_LENGTH, parse_response_header
from partage.wire.types import Message

#: For requests that do not reach the coordinator.
_BROKER_CONTEXT = BrokerContext(shard_count=1, has_partition=lambda topic, partition: True)


class FaultRule(msgspec.Struct, eq=False):
    """An action for requests of one API, by one client or all.

    ``remaining`` is the number of requests it still applies to; None means all.
    """

    key: int
    client_id: str | None
    action: Callable[[InboundRequest, Handler], None]
    remaining: int | None = 1

    def matches(self, inbound: InboundRequest) -> bool:
        """True if the rule applies to a request."""
        is_meant = self.client_id is None or self.client_id == inbound.client_id
        return self.key == inbound.api.key and is_meant


class RequestInterceptor:
    """The active rules, oldest first; used only on the broker's loop."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []
        self.clients = WeakKeyDictionary[Connection, str]()  # last client id of each connection

    def wrap(self, handler: Handler) -> Handler:
        """Return a handler that applies the first matching rule."""

        def handle(inbound: InboundRequest) -> None:
            self.clients[inbound.connection] = inbound.client_id
            for rule in self.rules:
                if rule.matches(inbound):
                    if rule.remaining is not None:
                        rule.remaining -= 1
                        if not rule.remaining:
                            self.rules.remove(rule)
                    rule.action(inbound, handler)
                    return
            handler(inbound)

        return handle


class HeldResponse:
    """A held response: `wait` until it exists, then `release` it. Also a context manager."""

    def __init__(self, run: Callable[[Callable[[], None]], None]) -> None:
        self._run = run
        self._has_response = threading.Event()
        self._send_response: Callable[[], None] | None = None
        self._is_released = False

    def wait(self, timeout_s: float = 10.0) -> None:
        """Return once the request has been served and its response is held.

        Raises:
            TimeoutError: no matching request arrived in time.
        """
        if not self._has_response.wait(timeout_s):
            raise TimeoutError(f"no matching request arrived within {timeout_s:g} s")

    def release(self) -> None:
        """Send the response. If the request has not arrived yet, its response will not be held."""
        self._run(self._release)

    def _release(self) -> None:
        self._is_released = True
        if self._send_response is not None:
            self._send_response()
            self._send_response = None

    def intercept(self, inbound: InboundRequest, handler: Handler) -> None:
        """Serve a request and hold its response."""

        def answered(served: InboundRequest) -> None:
            self._send_response = lambda: _send_captured(served, inbound)
            if self._is_released:
                self._release()
            self._has_response.set()

        serve_captured(inbound, handler, answered)

    def __enter__(self) -> HeldResponse:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class _CapturingConnection:
    """A request's connection for its handler; the response is captured instead of sent."""

    def __init__(self, connection: Connection, answered: Callable[[], None]) -> None:
        self.__dict__.update(_connection=connection, on_response_ready=answered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)


def serve_captured(
    inbound: InboundRequest, handler: Handler, answered: Callable[[InboundRequest], None]
) -> None:
    """Serve a request; pass it to ``answered`` instead of sending its response."""
    aside = _CapturingConnection(inbound.connection, lambda: answered(served))
    served = InboundRequest(
        cast(Connection, aside),
        inbound.api,
        inbound.version,
        inbound.correlation_id,
        inbound.client_id,
        inbound.message,
        inbound.at_ms,
    )
    handler(served)


def _send_captured(served: InboundRequest, inbound: InboundRequest) -> None:
    inbound.response_buffers = served.response_buffers
    inbound.is_done = True
    inbound.connection.on_response_ready()


def rewrite_response(
    change: Callable[[InboundRequest, Any], Message],
) -> Callable[[InboundRequest, Handler], None]:
    """Return an action that serves requests and changes their responses."""

    def act(inbound: InboundRequest, handler: Handler) -> None:
        def answered(served: InboundRequest) -> None:
            frame = b"".join(served.response_buffers)[FRAME_LENGTH.size :]
            _, pos = parse_response_header(inbound.api, inbound.version, frame)
            response = inbound.api.decode_response(inbound.version, frame, pos)
            inbound.respond(change(inbound, response))

        serve_captured(inbound, handler, answered)

    return act


def respond_with_error(error: ErrorCode) -> Callable[[InboundRequest, Handler], None]:
    """Return an action that responds with an error.

    Group requests and Produce have no effect; requests of other APIs are served before.
    """

    def act(inbound: InboundRequest, handler: Handler) -> None:
        key = inbound.api.key
        if key in API_ADAPTERS:
            _group_error(inbound, error)
        elif key == PRODUCE.key:
            if inbound.message.acks:
                inbound.respond(_produce_error(inbound.message, error))
            else:
                inbound.complete_without_response()
        else:
            rewrite_response(lambda _, response: set_error_codes(response, error))(inbound, handler)

    return act


def _group_error(inbound: InboundRequest, error: ErrorCode) -> None:
    events = inbound.start(API_ADAPTERS[inbound.api.key], _BROKER_CONTEXT, "refused")
    inbound.replies = [
        HeartbeatReply(error) if isinstance(event, Heartbeat) else error_reply(event, error)
        for event in events
    ]
    inbound.missing_replies = 0
    inbound.respond_encoded(inbound.encode_response())


def _produce_error(request: Any, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceTopicResult(
                name=topic.name,
                partition_responses=[
                    ProducePartitionResult(index=each.index, error_code=error, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def set_error_codes(message: Any, error: ErrorCode) -> Any:
    """Set all error codes in a message, and return it."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "error_code":
            setattr(message, name, error)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    set_error_codes(each, error)
    return message


def api_key(name: str) -> int:
    """Return the key of an API by name, such as ``JoinGroup``.

    Raises:
        ValueError: the name is unknown; the message has the most similar one.
    """
    keys = {api.name: api.key for api in APIS.values()}
    if name not in keys:
        near = difflib.get_close_matches(name, keys, n=1, cutoff=0.0)
        raise ValueError(f"{name!r} is not an API name; did you mean {near[0]!r}?")
    return keys[name]
