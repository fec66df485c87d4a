"""Requests through the bridge as in the broker: as bytes, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from partage.bridge import API_ADAPTERS, ApiAdapter, ApiCall
from partage.bridge.api_adapter import BrokerContext, deliver
from partage.coordinator.events import Request
from partage.coordinator.replies import Reply
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.shard_log import subscribed_topics
from partage.wire.api import AnyApi
from partage.wire.types import Message

NOW_MS = 1_000
SHARDS = 3
FRESH_ID = "fresh"
#: The existing topics, with their numbers of partitions.
TOPICS = {"t": 3, "u": 1}
SURROUNDINGS = BrokerContext(
    shard_count=SHARDS,
    has_partition=lambda topic, partition: 0 <= partition < TOPICS.get(topic, 0),
    topic_name=lambda topic_id: {id_of(name): name for name in TOPICS}.get(topic_id),
    topic_id=lambda name: id_of(name) if name in TOPICS else None,
)
every_version = pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(exchange.api, version, id=f"{exchange.api.name}-v{version}")
        for exchange in API_ADAPTERS.values()
        for version in range(exchange.api.version_min, exchange.api.version_max + 1)
    ],
)


def versions(api: AnyApi) -> range:
    return range(api.version_min, api.version_max + 1)


def id_of(topic: str) -> bytes:
    """Return the id of a topic, existing or not."""
    return topic.encode().rjust(16, b"-")


def name_of(topic: Any) -> str:
    """Return the name of a topic of a response, which may have its id only."""
    return str(topic.name or topic.topic_id.decode().lstrip("-"))


def start_call(
    api: AnyApi, version: int, request: Message
) -> tuple[ApiCall[Any], Sequence[Request]]:
    """Return the call of a client's bytes, and its events."""
    message = api.decode_request(version, b"".join(api.encode_request(version, request)))
    exchange: ApiAdapter[Any, Any] = API_ADAPTERS[api.key]
    call = ApiCall(version, message, "client", "/127.0.0.1", NOW_MS)
    return call, call.start(exchange, SURROUNDINGS, FRESH_ID)


def event_of(api: AnyApi, version: int, request: Message) -> Any:
    """Return the single event of a request."""
    (event,) = start_call(api, version, request)[1]
    return event


def complete(call: ApiCall[Any], events: Sequence[Request], replies: Sequence[Reply]) -> Any:
    """Return the response as the client decodes it, after replies in any order."""
    owed = list(zip(events, replies, strict=True))
    complete = [deliver(event.reply_to, reply) for event, reply in reversed(owed)]
    assert complete == [*[None] * (len(owed) - 1), call] if owed else not complete
    api = call.adapter.api
    return api.decode_response(call.version, b"".join(call.encode_response()))


def response_to(api: AnyApi, version: int, request: Message, *replies: Reply) -> Any:
    """Return the response to a request for these replies of the coordinator."""
    return complete(*start_call(api, version, request), replies)


def serve(shard: Shard, api: AnyApi, version: int, request: Message) -> Any:
    """Return the response to a request that a shard answers at once."""
    call, events = start_call(api, version, request)
    replies = [shard.handle(event).replies for event in events]
    assert all(len(each) == 1 for each in replies), "an event did not get exactly one reply"
    return complete(call, events, [reply for ((_, reply),) in replies])


def new_shard() -> Shard:
    shard = Shard(GroupSettings(), subscribed_topics)
    shard.resume(NOW_MS)
    return shard
