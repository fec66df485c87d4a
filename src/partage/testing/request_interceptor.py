"""Interception of requests to a test's broker: errors, held and changed responses."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from partage.bridge import API_ADAPTERS
from partage.bridge.api_adapter import BrokerContext
from partage.broker.net.inbound_request import Handler, InboundRequest, RequestConnection
from partage.coordinator.events import Heartbeat
from partage.coordinator.replies import HeartbeatReply
from partage.coordinator.unavailable_replies import error_reply
from partage.model.errors import ErrorCode
from partage.testing.broker_loop import BrokerLoop
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
_BROKER_CONTEXT = BrokerContext(
    shard_count=1,
    has_partition=lambda topic, partition: True,
    topic_name=bytes.hex,  # each id has a name, so that the response has the injected error
)


class UnusedFaultError(AssertionError):
    """Raised if a fault was injected and no request has met it, so the test did not test it."""


class FaultRule(msgspec.Struct, eq=False):
    """An action for requests of one API, by one client or all.

    Attributes:
        remaining: number of requests that it still applies to; None means all.
        times: ``remaining`` at the start, for messages.
        call: the call that injected the fault, for messages.
        is_required: True if it is an error that too few requests arrive.
    """

    key: int
    client_id: str | None
    action: Callable[[InboundRequest, Handler], None]
    remaining: int | None = 1
    times: int = 1
    call: str = ""
    is_required: bool = False

    def matches(self, inbound: InboundRequest) -> bool:
        """True if the rule applies to a request."""
        is_meant = self.client_id is None or self.client_id == inbound.client_id
        return self.key == inbound.api.key and is_meant

    def __str__(self) -> str:
        met = self.times - (self.remaining or 0)
        return f"faults.{self.call} has met {met} of {self.times} requests"


class RequestInterceptor:
    """The active rules, oldest first; used only on the broker's loop, except for `waive`."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []
        self.clients = WeakKeyDictionary[
            RequestConnection, str
        ]()  # last client id of each connection
        self._withdrawn: list[FaultRule] = []  # required rules that were released too early

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

    def remove(self, rules: Iterable[FaultRule]) -> None:
        """Remove rules."""
        removed = list(rules)
        self.rules[:] = [each for each in self.rules if each not in removed]

    def withdraw(self, rule: FaultRule) -> None:
        """Remove a rule, if it has not been applied yet; it is still reported as unused."""
        if rule in self.rules:
            self.rules.remove(rule)
            self._withdrawn.append(rule)

    def forget(self, kept: Iterable[FaultRule]) -> None:
        """Remove all rules except ``kept``, without reporting them as unused."""
        self.rules[:] = kept
        self._withdrawn.clear()

    def waive(self) -> None:
        """Do not report the current rules as unused; they stay active. Any thread may call this."""
        self._withdrawn.clear()
        for rule in list(self.rules):
            rule.is_required = False

    def unused(self) -> list[str]:
        """Describe the required rules that too few requests have met."""
        return [str(rule) for rule in (*self._withdrawn, *self.rules) if rule.is_required]


class HeldResponse:
    """A held response: `wait` until it exists, then `release` it. Also a context manager."""

    def __init__(self, loop: BrokerLoop, withdraw: Callable[[], None]) -> None:
        self._loop = loop
        self._withdraw = withdraw
        self._has_response = asyncio.Event()  # used on the broker's loop only
        self._send_response: Callable[[], None] | None = None
        self._is_released = False

    def wait(self, timeout_s: float = 10.0) -> None:
        """Return once the request has been served and its response is held.

        Raises:
            RuntimeError: called in a coroutine; `wait_async` is for these.
            TimeoutError: no matching request arrived in time.
        """
        self._loop.wait(
            lambda: self._wait(timeout_s), blocking="wait()", awaitable="held.wait_async()"
        )

    async def wait_async(self, timeout_s: float = 10.0) -> None:
        """Do the same as `wait`, without blocking the event loop.

        Raises:
            TimeoutError: no matching request arrived in time.
        """
        await self._loop.wait_async(self._wait(timeout_s))

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_response.wait()
        except TimeoutError:
            raise TimeoutError(f"no matching request arrived within {timeout_s:g} s") from None

    def release(self) -> None:
        """Send the response. If the request has not arrived yet, its response will not be held."""
        if self._loop.is_closed:  # the broker has stopped, so no client waits
            self._withdraw()
        else:
            self._loop.call(self._release)

    def _release(self) -> None:
        self._is_released = True
        self._withdraw()
        if self._send_response is not None:
            self._send_response()
            self._send_response = None

    def intercept(self, inbound: InboundRequest, handler: Handler) -> None:
        """Serve a request and hold its response.

        Args:
            inbound: The request.
            handler: The handler of its API.
        """

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

    def __init__(self, connection: RequestConnection, answered: Callable[[], None]) -> None:
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
        cast(RequestConnection, aside),
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
    inbound.respond_with_replies()


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
        if name.endswith("error_code"):
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
        raise ValueError(f"{name!r} is not an API name; did you mean {_nearest(name, keys)!r}?")
    return keys[name]


def error_code(error: str | int) -> ErrorCode:
    """Return an error code by its name in Kafka or by its number.

    Raises:
        ValueError: the error is unknown (for a name, the message has the most similar one), or it
            means success.
    """
    if isinstance(error, str):
        names = ErrorCode.__members__
        if error not in names:
            near = _nearest(error.upper(), names)
            raise ValueError(f"{error!r} is not an error code; did you mean {near!r}?")
        error = names[error]
    code = ErrorCode(error)
    if code is ErrorCode.NONE:
        raise ValueError("NONE is not an error: a response with this code says success")
    return code


def _nearest(name: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
