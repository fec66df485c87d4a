"""A request on its way through the coordinator, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from partage.coordinator.events import Asked, Ticket
from partage.coordinator.replies import Reply
from partage.wire.api import Api
from partage.wire.types import Buffer, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the bridge has to know of the broker around it."""

    shard_count: int
    has_partition: Callable[[str, int], bool]


class Exchange(Generic[Req, Res]):
    """How one API becomes events, and their replies its response.

    ``ask`` gives the events that a request asks, none if it can be answered at once, each with a
    ticket of `Call.ticket`. ``answer`` gives the response to their replies, in the same order.
    With ``is_error_only`` the response says an error code and nothing else.
    """

    def __init__(
        self,
        api: Api[Req, Res],
        ask: Callable[[Call[Req]], Sequence[Asked]],
        answer: Callable[[Call[Req], list[Any]], Res],
        *,
        is_error_only: bool = False,
    ) -> None:
        self.api = api
        self.ask = ask
        self._answer = answer
        self._encoded: dict[tuple[int, int], list[Buffer]] | None = {} if is_error_only else None

    def response(self, call: Call[Req]) -> list[Buffer]:
        """The bytes of the response, in the client's version."""
        version = call.version
        if self._encoded is None:
            return self.api.encode_response(version, self._answer(call, call.replies))
        key = version, call.replies[0].error
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self.api.encode_response(version, self._answer(call, call.replies))
            self._encoded[key] = encoded
        return encoded


class Part:
    """The ticket for one of several events that a request asked; equal only to itself."""

    __slots__ = ("call", "position")

    def __init__(self, call: Call[Any], position: int) -> None:
        self.call = call
        self.position = position


class Call(Generic[Req]):
    """One request, from the frame that brought it to the response that answers it.

    A shell makes it, as a class of its own that knows where the response goes, and gives it to
    `begin` with the API's exchange.
    """

    __slots__ = (
        "at_ms",
        "client_host",
        "client_id",
        "exchange",
        "fresh_id",
        "kept",
        "message",
        "missing",
        "replies",
        "surroundings",
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

    def begin(
        self, exchange: Exchange[Req, Any], surroundings: Surroundings, fresh_id: str = ""
    ) -> Sequence[Asked]:
        """The events this request asks; once they are all answered the call is complete.

        ``fresh_id`` is unique, and becomes the tail of a new member's id.
        """
        self.exchange = exchange
        self.surroundings = surroundings
        self.fresh_id = fresh_id
        self.kept: Any = None  # what `ask` keeps for `answer`
        asked = exchange.ask(self)
        self.missing = len(asked)
        self.replies: list[Any] = [None] * self.missing
        return asked

    @property
    def ticket(self) -> Ticket:
        """The ticket of a request that asks one event."""
        return Ticket(self)

    def part(self, position: int) -> Ticket:
        """The ticket of the event at ``position`` of several."""
        return Ticket(Part(self, position))

    def response(self) -> list[Buffer]:
        """The response's bytes, in the client's version; only when nothing is missing."""
        assert not self.missing, f"{self.exchange.api} is answered before its events are"
        return self.exchange.response(self)


def deliver(ticket: Ticket, reply: Reply) -> Call[Any] | None:
    """Bring a reply to its call; the call, if that was the last one missing."""
    owed: Any = ticket
    call, position = (owed.call, owed.position) if type(owed) is Part else (owed, 0)
    replies = call.replies
    assert replies[position] is None, f"{call.exchange.api} is answered twice"
    replies[position] = reply
    call.missing -= 1
    return None if call.missing else call
