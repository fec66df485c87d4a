"""Requests to a shard's host without a connection; the test gets the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from partage.bridge import API_ADAPTERS, ApiCall
from partage.bridge.api_adapter import BrokerContext
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.ids import RANDOM_IDS
from partage.coordinator.outcome import GroupEvent
from partage.store.group_events import LagSample
from partage.wire.api import Api

BROKER_CONTEXT = BrokerContext(shard_count=1, has_partition=lambda topic, partition: True)


class CapturedCall(ApiCall[Any]):
    """A request whose response is kept."""

    __slots__ = ("answered",)

    def respond_with_replies(self) -> None:
        body = self.encode_response()
        self.answered.set_result(self.adapter.api.decode_response(self.version, b"".join(body)))


def ask(
    host: ShardHost,
    api: Api[Any, Any],
    version: int,
    message: Any,
    now_ms: int,
    drawn_id: str | None = None,
) -> asyncio.Future[Any]:
    """Send a request to a shard's host; return the future response.

    ``drawn_id`` makes member ids unique.
    """
    call = CapturedCall(version, message, "client", "/127.0.0.1", now_ms)
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call.answered = answered
    events = call.start(API_ADAPTERS[api.key], BROKER_CONTEXT, drawn_id or RANDOM_IDS.fresh_id())
    if len(events) == 1:  # as the group coordinator of a broker does
        host.answer(events[0])
    else:
        for event in events:
            host.handle(event)
    return answered


class RecordingPublisher:
    """Records the published events; ``on_told`` is called for each."""

    def __init__(
        self, on_told: Callable[[GroupEvent | LagSample], None] = lambda told: None
    ) -> None:
        self.published: list[GroupEvent | LagSample] = []
        self.epochs: list[int | None] = []
        self.dropped = 0
        self._on_published = on_told

    def publish(self, told: GroupEvent | LagSample, epoch: int | None) -> None:
        self._on_published(told)
        self.published.append(told)
        self.epochs.append(epoch)

    def count_dropped(self, count: int) -> None:
        self.dropped += count

    @property
    def event_types(self) -> list[str]:
        return [str(each.event_type) for each in self.published if isinstance(each, GroupEvent)]
