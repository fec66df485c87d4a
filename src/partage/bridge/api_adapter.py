"""Conversion of a request to events, and of their replies to the response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from partage.coordinator.events import Request, Ticket
from partage.coordinator.replies import Reply
from partage.wire.api import Api
from partage.wire.types import Buffer, Message

_MESSAGE_MAX: Final = 1_000  # characters

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


def _no_topic(_: Any) -> None:
    """Return None: a broker without topic ids."""


class BrokerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the broker that the adapters need.

    Attributes:
        shard_count: Number of the shards of groups.
        has_partition: True if a partition exists, on any broker.
        topic_name: Returns the name of a topic by its id, None if there is none.
        topic_id: Returns the id of a topic by its name, None if there is none.
    """

    shard_count: int
    has_partition: Callable[[str, int], bool]
    topic_name: Callable[[bytes], str | None] = _no_topic
    topic_id: Callable[[str], bytes | None] = _no_topic


class ApiAdapter(Generic[Req, Res]):
    """Converter of the requests of one API to events, and of their replies to a response.

    Args:
        api: The API.
        to_events: Returns the events of a request, each with a ticket of its `ApiCall`. It returns
            none if the request can be answered at once.
        to_response: Returns the response for the replies, which are in the order of the events.
        is_error_only: True if the response consists of an error code only; its bytes are cached.
    """

    def __init__(
        self,
        api: Api[Req, Res],
        ask: Callable[[ApiCall[Req]], Sequence[Request]],
        answer: Callable[[ApiCall[Req], list[Any]], Res],
        *,
        is_error_only: bool = False,
    ) -> None:
        self.api = api
        self.to_events = ask
        self._to_response = answer
        self._encoded: dict[tuple[int, int], list[Buffer]] | None = {} if is_error_only else None

    def build_response(self, call: ApiCall[Req]) -> Res:
        """Return the response."""
        return self._to_response(call, call.replies)

    def encode_response(self, call: ApiCall[Req]) -> list[Buffer]:
        """Return the bytes of the response, in the client's version."""
        version = call.version
        if self._encoded is None:
            return self.api.encode_response(version, self._to_response(call, call.replies))
        key = version, call.replies[0].error
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self.api.encode_response(version, self.build_response(call))
            self._encoded[key] = encoded
        return encoded


def limit_text(message: str | None) -> str | None:
    """Return an error message short enough for a response: it may repeat a client's long text."""
    if message is None or len(message) <= _MESSAGE_MAX:
        return message
    return f"{message[:_MESSAGE_MAX]}..."


class SubTicket:
    """The ticket of one of several events of a call; equal only to itself."""

    __slots__ = ("call", "position")

    def __init__(self, call: ApiCall[Any], position: int) -> None:
        self.call = call
        self.position = position


class ApiCall(Generic[Req]):
    """One request, from its frame to its response.

    A shell subclasses it to add the destination of the response, and calls `start` with the API's
    adapter.
    """

    __slots__ = (
        "adapter",
        "at_ms",
        "broker",
        "client_host",
        "client_id",
        "fresh_id",
        "message",
        "missing_replies",
        "prepared",
        "replies",
        "version",
    )

    def __init__(
        self, version: int, message: Req, client_id: str, client_host: str, at_ms: int
    ) -> None:
        self.version = version
        self.message = message
        self.client_id = client_id
        self.client_host = client_host
        self.at_ms = at_ms

    def start(
        self, exchange: ApiAdapter[Req, Any], broker_context: BrokerContext, fresh_id: str = ""
    ) -> Sequence[Request]:
        """Convert the request to events. The call is complete once all of them have replies.

        Args:
            exchange: The adapter of the API.
            broker_context: Facts about the broker.
            fresh_id: A unique string, which becomes the end of a new member's id.

        Returns:
            The events to handle.
        """
        self.adapter = exchange
        self.broker = broker_context
        self.fresh_id = fresh_id
        self.prepared: Any = None  # data that `to_events` prepares for `to_response`
        events = exchange.to_events(self)
        self.missing_replies = len(events)
        self.replies: list[Any] = [None] * self.missing_replies
        return events

    @property
    def ticket(self) -> Ticket:
        """The ticket of a call with one event."""
        return Ticket(self)

    def sub_ticket(self, position: int) -> Ticket:
        """Return the ticket of the event at ``position``, for a call with several events."""
        return Ticket(SubTicket(self, position))

    def encode_response(self) -> list[Buffer]:
        """Return the bytes of the response, in the client's version, once no reply is missing."""
        assert not self.missing_replies, (
            f"{self.adapter.api} has no reply yet for some of its events"
        )
        return self.adapter.encode_response(self)

    def build_response(self) -> Message:
        """Return the response once no reply is missing. It may have fields of other versions."""
        assert not self.missing_replies, (
            f"{self.adapter.api} has no reply yet for some of its events"
        )
        response: Message = self.adapter.build_response(self)
        return response


def deliver(ticket: Ticket, reply: Reply) -> ApiCall[Any] | None:
    """Store a reply in its call.

    Returns:
        The call if this was its last missing reply, else None.
    """
    owed: Any = ticket
    call, position = (owed.call, owed.position) if type(owed) is SubTicket else (owed, 0)
    replies = call.replies
    assert replies[position] is None, f"{call.adapter.api} got a second reply for one event"
    replies[position] = reply
    call.missing_replies -= 1
    return None if call.missing_replies else call
