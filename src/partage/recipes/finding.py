"""Partitions of topics that may just have been made: not every broker knows of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from partage.client.errors import UnknownTopic
from partage.client.topics import TopicPartition

if TYPE_CHECKING:
    from partage.client.consumer import Consumer
    from partage.client.consumer.blocking import Consumer as BlockingConsumer

_AGAIN_S: Final = 0.1


def wait_s(options: Mapping[str, Any]) -> float:
    """For how long a topic may be unknown: the consumer's option, with its default."""
    return float(options.get("unknown_topic_wait_ms", 5_000)) / 1000


async def partitions_of(consumer: Consumer, topic: str, within_s: float) -> list[TopicPartition]:
    """A topic's partitions; raises UnknownTopic if it is not there in time."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return await consumer.partitions_of(topic)
        except UnknownTopic:
            if time.monotonic() >= give_up:
                raise
        await asyncio.sleep(_AGAIN_S)


def partitions_of_blocking(
    consumer: BlockingConsumer, topic: str, within_s: float
) -> list[TopicPartition]:
    """The same, blocking."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return consumer.partitions_of(topic)
        except UnknownTopic:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_AGAIN_S)
