"""Topics, partitions and brokers as the cluster metadata describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.wire.types import ZERO_UUID


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition (-1: none at present) and its epoch (-1: unknown)."""

    leader_id: int
    leader_epoch: int


class BrokerMetadata(NamedTuple):
    """The host of a broker, and its rack if it has one (KIP-36)."""

    host: str
    rack: str | None


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. ``topic_id`` is zero from brokers without topic ids (before Kafka 2.8).

    ``partitions`` has the leader of each partition, ``replicas`` the ids of its brokers, and
    ``online_replicas`` those of them that are online and listed in the same response.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, LeaderAndEpoch]
    replicas: Mapping[int, tuple[int, ...]] = {}
    online_replicas: Mapping[int, tuple[int, ...]] = {}

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """Partitions of the topic, in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.partitions)]
