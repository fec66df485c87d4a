"""What stands around every handler of a test's broker: requests refused, responses held."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from partage.bridge import API_ADAPTERS
from partage.bridge.api_adapter import BrokerContext
from partage.broker.connection import Connection
from partage.broker.inbound import Handler, Inbound
from partage.coordinator.error_replies import error_reply
from partage.coordinator.events import Heartbeat
from partage.coordinator.replies import HeartbeatReply
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

#: Of requests that no coordinator sees.
_NOWHERE = BrokerContext(shard_count=1, has_partition=lambda topic, partition: True)


class Rule(msgspec.Struct, eq=False):
    """What becomes of requests of one API, of one client or any; ``left`` None is for good."""

    key: int
    client_id: str | None
    act: Callable[[Inbound, Handler], None]
    left: int | None = 1

    def fits(self, inbound: Inbound) -> bool:
        """Whether it is about this request."""
        is_meant = self.client_id is None or self.client_id == inbound.client_id
        return self.key == inbound.api.key and is_meant


class Gates:
    """The rules in force, the oldest first; used on the broker's loop alone."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.clients = WeakKeyDictionary[Connection, str]()  # what each said of itself last

    def wrap(self, handler: Handler) -> Handler:
        """The handler behind the gate."""

        def handle(inbound: Inbound) -> None:
            self.clients[inbound.connection] = inbound.client_id
            for rule in self.rules:
                if rule.fits(inbound):
                    if rule.left is not None:
                        rule.left -= 1
                        if not rule.left:
                            self.rules.remove(rule)
                    rule.act(inbound, handler)
                    return
            handler(inbound)

        return handle


class Held:
    """A response that is held: `wait` until there is one, `release` it. A context manager, too."""

    def __init__(self, run: Callable[[Callable[[], None]], None]) -> None:
        self._run = run
        self._is_there = threading.Event()
        self._released: Callable[[], None] | None = None
        self._is_over = False

    def wait(self, timeout_s: float = 10.0) -> None:
        """Return once the request has been served and its response is held.

        Raises:
            TimeoutError: there was no such request in time.
        """
        if not self._is_there.wait(timeout_s):
            raise TimeoutError(f"there was no response to hold within {timeout_s:g} s")

    def release(self) -> None:
        """Let it go; what has not come yet is not held any more."""
        self._run(self._release)

    def _release(self) -> None:
        self._is_over = True
        if self._released is not None:
            self._released()
            self._released = None

    def take(self, inbound: Inbound, handler: Handler) -> None:
        """Serve the request, and keep its response."""

        def answered(served: Inbound) -> None:
            self._released = lambda: _pass_on(served, inbound)
            if self._is_over:
                self._release()
            self._is_there.set()

        serve_aside(inbound, handler, answered)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class _Aside:
    """A request's connection, as its handler sees it; its answer goes elsewhere."""

    def __init__(self, connection: Connection, answered: Callable[[], None]) -> None:
        self.__dict__.update(_connection=connection, answered=answered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)


def serve_aside(inbound: Inbound, handler: Handler, answered: Callable[[Inbound], None]) -> None:
    """Serve a request whose answer is not sent, but given to ``answered``."""
    aside = _Aside(inbound.connection, lambda: answered(served))
    served = Inbound(
        cast(Connection, aside),
        inbound.api,
        inbound.version,
        inbound.correlation_id,
        inbound.client_id,
        inbound.message,
        inbound.at_ms,
    )
    handler(served)


def _pass_on(served: Inbound, inbound: Inbound) -> None:
    inbound.outgoing = served.outgoing
    inbound.is_done = True
    inbound.connection.answered()


def rewriting(change: Callable[[Inbound, Any], Message]) -> Callable[[Inbound, Handler], None]:
    """Serve requests, and change their responses."""

    def act(inbound: Inbound, handler: Handler) -> None:
        def answered(served: Inbound) -> None:
            frame = b"".join(served.outgoing)[FRAME_LENGTH.size :]
            _, pos = parse_response_header(inbound.api, inbound.version, frame)
            response = inbound.api.decode_response(inbound.version, frame, pos)
            inbound.respond(change(inbound, response))

        serve_aside(inbound, handler, answered)

    return act


def refusing(error: ErrorCode) -> Callable[[Inbound, Handler], None]:
    """Answer with an error. Requests of groups and Produce have no effect; others are served."""

    def act(inbound: Inbound, handler: Handler) -> None:
        key = inbound.api.key
        if key in API_ADAPTERS:
            _refuse_of_group(inbound, error)
        elif key == PRODUCE.key:
            if inbound.message.acks:
                inbound.respond(_not_produced(inbound.message, error))
            else:
                inbound.stay_silent()
        else:
            rewriting(lambda _, response: with_error(response, error))(inbound, handler)

    return act


def _refuse_of_group(inbound: Inbound, error: ErrorCode) -> None:
    asked = inbound.start(API_ADAPTERS[inbound.api.key], _NOWHERE, "refused")
    inbound.replies = [
        HeartbeatReply(error) if isinstance(event, Heartbeat) else error_reply(event, error)
        for event in asked
    ]
    inbound.missing_replies = 0
    inbound.respond_encoded(inbound.encode_response())


def _not_produced(request: Any, error: ErrorCode) -> ProduceResponse:
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


def with_error(message: Any, error: ErrorCode) -> Any:
    """The message with this error code wherever it has one."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "error_code":
            setattr(message, name, error)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    with_error(each, error)
    return message


def api_key(name: str) -> int:
    """The key of an API by its name, such as ``JoinGroup``.

    Raises:
        ValueError: there is none; the nearest is named.
    """
    keys = {api.name: api.key for api in APIS.values()}
    if name not in keys:
        near = difflib.get_close_matches(name, keys, n=1, cutoff=0.0)
        raise ValueError(f"there is no API {name}; did you mean {near[0]}?")
    return keys[name]
