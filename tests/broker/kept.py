"""Requests to a shard's host without a connection: the answer is kept for the test."""

from __future__ import annotations

import asyncio
from typing import Any

from partage.bridge import EXCHANGES, Call
from partage.bridge.exchange import Surroundings
from partage.broker.ids import fresh_id
from partage.broker.shard_host import ShardHost
from partage.wire.api import Api

SURROUNDINGS = Surroundings(shard_count=1, has_partition=lambda topic, partition: True)


class Kept(Call[Any]):
    """A request whose answer is kept."""

    __slots__ = ("answered",)

    def respond_encoded(self, body: list[Any]) -> None:
        self.answered.set_result(self.exchange.api.decode_response(self.version, b"".join(body)))


def ask(
    host: ShardHost,
    api: Api[Any, Any],
    version: int,
    message: Any,
    now_ms: int,
    drawn_id: str | None = None,
) -> asyncio.Future[Any]:
    """Ask a shard's host; the answer, once there is one. ``drawn_id`` makes member ids unique."""
    call = Kept(version, message, "client", "/127.0.0.1", now_ms)
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call.answered = answered
    for event in call.begin(EXCHANGES[api.key], SURROUNDINGS, drawn_id or fresh_id()):
        host.handle(event)
    return answered
