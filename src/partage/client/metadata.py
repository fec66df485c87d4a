"""Topics, partitions and brokers as the cluster metadata describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from partage.wire.types import ZERO_UUID


class TopicPartition(NamedTuple):
    """A partition of a topic, written ``topic-partition`` as in Kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition (-1: nobody for now), and since which epoch (-1: not told)."""

    leader_id: int
    leader_epoch: int


class BrokerMetadata(NamedTuple):
    """Where a broker is: its host, and its rack if it has one (KIP-36)."""

    host: str
    rack: str | None


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A topic; ``topic_id`` is zero with brokers that have none (before Kafka 2.8).

    ``replicas`` has the ids of each partition's brokers.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, LeaderAndEpoch]
    replicas: Mapping[int, tuple[int, ...]] = {}

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """All partitions, in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.partitions)]
