"""Partitions of topics that may just have been made: not every broker knows of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from partage.client.errors import UnknownTopicError
from partage.client.metadata import TopicPartition
from partage.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from partage.client.consumer import Consumer
    from partage.client.consumer.sync_consumer import Consumer as BlockingConsumer

_AGAIN_S: Final = 0.1


def unknown_topic_wait_s(options: Mapping[str, Any]) -> float:
    """For how long a topic may be unknown: the consumer's option, with its default."""
    return float(options.get("unknown_topic_wait_ms", 5_000)) / 1000


async def partitions_of(consumer: Consumer, topic: str, within_s: float) -> list[TopicPartition]:
    """A topic's partitions; raises UnknownTopicError if it is not there in time."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return await consumer.partitions_of(topic)
        except UnknownTopicError:
            if time.monotonic() >= give_up:
                raise
        await asyncio.sleep(_AGAIN_S)


def partitions_of_sync(
    consumer: BlockingConsumer, topic: str, within_s: float
) -> list[TopicPartition]:
    """The same, blocking."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return consumer.partitions_of(topic)
        except UnknownTopicError:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_AGAIN_S)


def topic_ids_sync(consumer: BlockingConsumer, topics: Iterable[str]) -> dict[str, str]:
    """The topics' ids: one that was made anew has another. Empty where the cluster has none.

    Raises:
        ClientError: a topic is not there, or nobody answers.
    """
    engine = consumer._engine  # with its connections: a rebalance takes no new ones
    found = engine.submit(engine.cluster.topics(topics, fresh=True)).result()
    return {
        name: "" if topic.topic_id == ZERO_UUID else topic.topic_id.hex()
        for name, topic in found.items()
    }
