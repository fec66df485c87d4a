"""Metadata of topics that may be new: not all brokers know a new topic at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from partage.client.consumer.config import ReaderConfig
from partage.client.consumer.options import ConsumerOptions
from partage.client.errors import UnknownTopicError
from partage.model.arguments import check_int
from partage.model.topic_partition import TopicPartition
from partage.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from partage.client.consumer import Consumer
    from partage.client.consumer.sync_consumer import Consumer as BlockingConsumer

_AGAIN_S: Final = 0.1


def unknown_topic_wait_s(options: ReaderConfig) -> float:
    """Return the consumer option ``unknown_topic_wait_ms``, or its default, in seconds."""
    default_ms = ConsumerOptions().unknown_topic_wait_ms
    wait_ms = options.get("unknown_topic_wait_ms", default_ms)
    return check_int("unknown_topic_wait_ms", wait_ms, unit="ms") / 1000


async def partitions_of(consumer: Consumer, topic: str, within_s: float) -> list[TopicPartition]:
    """Return a topic's partitions; raise UnknownTopicError if it does not exist in time."""
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
    """Return a topic's partitions, blocking; see `partitions_of`."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return consumer.partitions_of(topic)
        except UnknownTopicError:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_AGAIN_S)


def topic_ids_sync(consumer: BlockingConsumer, topics: Iterable[str]) -> dict[str, str]:
    """Return the topics' ids, empty strings if the cluster has none.

    A topic that was deleted and created again has another id.

    Raises:
        ClientError: A topic does not exist, or no broker answered.
    """
    # use the consumer's connections: a rebalance must not wait for new ones
    engine = consumer._engine
    found = engine.submit(engine.cluster.topics(topics, fresh=True)).result()
    return {
        name: "" if topic.topic_id == ZERO_UUID else topic.topic_id.hex()
        for name, topic in found.items()
    }
