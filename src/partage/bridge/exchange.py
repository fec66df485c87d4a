"""A request on its way through the coordinator, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from partage.coordinator.events import ListGroups, Request, Ticket
from partage.coordinator.replies import Reply
from partage.wire.api import Api
from partage.wire.types import Buffer, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
Asked = Request | ListGroups


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the bridge has to know of the broker around it."""

    shard_count: int
    has_partition: Callable[[str, int], bool]


class Exchange(Generic[Req, Res]):
    """How one API becomes events, and their replies its response.

    ``ask`` gives the events that a request asks, none if it can be answered at once, each with a
    ticket of `Call.ticket`. ``answer`` gives the response to their replies, in the same order.
    """

    def __init__(
        self,
        api: Api[Req, Res],
        ask: Callable[[Call[Req]], Sequence[Asked]],
        answer: Callable[[Call[Req], list[Any]], Res],
        *,
        draws_ids: bool = False,
    ) -> None:
        self.api = api
        self.ask = ask
        self.answer = answer
        self.draws_ids = draws_ids  # whether a call needs a fresh id


class Part:
    """The ticket for one of several events that a request asked; equal only to itself."""

    __slots__ = ("call", "position")

    def __init__(self, call: Call[Any], position: int) -> None:
        self.call = call
        self.position = position


class Call(Generic[Req]):
    """One request, from the frame that brought it to the response that answers it."""

    __slots__ = (
        "at_ms",
        "client_host",
        "client_id",
        "exchange",
        "fresh_id",
        "kept",
        "missing",
        "origin",
        "replies",
        "request",
        "surroundings",
        "version",
    )

    def __init__(
        self,
        exchange: Exchange[Req, Any],
        version: int,
        request: Req,
        surroundings: Surroundings,
        *,
        client_id: str,
        client_host: str,
        at_ms: int,
        fresh_id: str = "",
    ) -> None:
        self.exchange = exchange
        self.version = version
        self.request = request
        self.surroundings = surroundings
        self.client_id = client_id
        self.client_host = client_host
        self.at_ms = at_ms
        self.fresh_id = fresh_id  # unique; becomes the tail of a new member's id
        self.replies: list[Any] = []
        self.missing = 0
        self.kept: Any = None  # what `ask` keeps for `answer`
        self.origin: Any = None  # the shell's own: where the response goes

    def ask(self) -> Sequence[Asked]:
        """The events this request asks; once they are all answered the call is complete."""
        asked = self.exchange.ask(self)
        self.missing = len(asked)
        self.replies = [None] * self.missing
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
        answer = self.exchange.answer(self, self.replies)
        return self.exchange.api.encode_response(self.version, answer)


def deliver(ticket: Ticket, reply: Reply) -> Call[Any] | None:
    """Bring a reply to its call; the call, if that was the last one missing."""
    owed: Any = ticket
    call, position = (owed.call, owed.position) if isinstance(owed, Part) else (owed, 0)
    assert call.replies[position] is None, f"{call.exchange.api} is answered twice"
    call.replies[position] = reply
    call.missing -= 1
    return None if call.missing else call
