"""Reader of the partitions whose last stable offset is held back by open transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from partage.client.cluster import Cluster
from partage.console.common.client_requests import broker_addresses, run_client
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.transactions.transaction_requests import (
    OpenTransaction,
    PartitionProducer,
    describe_producers,
    find_transactions,
)
from partage.model.topic_partition import TopicPartition
from partage.web.cluster_history import UnstablePartition

#: Interval between two searches, in ms: a search asks about all partitions.
_EVERY_MS: Final = 10_000
#: Most transactions last for less; coordinators are asked about the others only.
_HELD_MIN_MS: Final = 10_000
#: Number of partitions with the oldest transactions that the page shows.
_HELD_MAX: Final = 50


def _wall_ms() -> int:
    return int(time.time() * 1000)


class HeldPartitionsReader:
    """Reader of held partitions, with the time when it first saw each transaction.

    Args:
        cluster: the cluster.
        now_ms: the wall clock, in ms since the epoch.
    """

    def __init__(self, cluster: ClusterClient, now_ms: Callable[[], int] = _wall_ms) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._next_ms = 0
        self._held: list[UnstablePartition] = []
        self._first_seen_ms: dict[tuple[TopicPartition, int, int | None], int] = {}
        #: Reason why open transactions are unknown; empty if they are known.
        self.remark = ""

    def read(self) -> list[UnstablePartition]:
        """Return the partitions that are held for 10 s or longer, the oldest first, at most 50.

        It asks the cluster every 10 s, and returns the last result in between. If the cluster
        refuses the requests, `remark` says why, and the page works without transactions.
        """
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return self._held
        self._next_ms = now_ms + _EVERY_MS
        try:
            self._held, self.remark = self._find(now_ms), ""
        except CommandError as error:
            self._held, self.remark = [], f"open transactions are unknown: {error.message}"
        return self._held

    def _find(self, now_ms: int) -> list[UnstablePartition]:
        metadata = self._cluster.metadata()
        brokers = broker_addresses(self._cluster)
        partitions = [
            TopicPartition(topic, number)
            for topic, described in metadata.topics.items()
            for number, partition in described.partitions.items()
            if partition.leader >= 0
        ]

        async def find(client: Cluster) -> list[OpenTransaction]:
            producers = await describe_producers(client, partitions)
            return await find_transactions(client, brokers, self._oldest(producers, now_ms))

        held = [self._held_partition(each) for each in run_client(self._cluster, find)]
        return sorted(held, key=lambda each: each.since_ms)

    def _oldest(self, producers: list[PartitionProducer], now_ms: int) -> list[PartitionProducer]:
        """Return the first open transaction of each partition, if it is old enough."""
        first: dict[TopicPartition, PartitionProducer] = {}
        for each in producers:
            if each.start_offset is not None:
                before = first.setdefault(each.topic_partition, each)
                if each.start_offset < (before.start_offset or 0):
                    first[each.topic_partition] = each
        seen_ms = self._first_seen_ms
        self._first_seen_ms = {
            _identity(each): seen_ms.get(_identity(each), now_ms) for each in first.values()
        }
        old = [each for each in first.values() if now_ms - self._since_ms(each) >= _HELD_MIN_MS]
        return sorted(old, key=self._since_ms)[:_HELD_MAX]

    def _since_ms(self, producer: PartitionProducer) -> int:
        """Return the earlier of the producer's last record and of the time when it was first seen.

        The record may have a time in the future, because the producer sets it.
        """
        seen_ms = self._first_seen_ms[_identity(producer)]
        return min(seen_ms, producer.last_timestamp_ms or seen_ms)

    def _held_partition(self, found: OpenTransaction) -> UnstablePartition:
        producer = found.producer
        assert producer.start_offset is not None  # `_oldest` selects open transactions.
        return UnstablePartition(
            topic=producer.topic,
            partition=producer.partition,
            start_offset=producer.start_offset,
            since_ms=self._since_ms(producer) if found.start_ms is None else found.start_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional_id=found.transactional_id,
            is_hanging=found.is_hanging,
        )


def _identity(producer: PartitionProducer) -> tuple[TopicPartition, int, int | None]:
    return producer.topic_partition, producer.producer_id, producer.start_offset
