"""The brokers of partitions, groups and transactional ids, as one broker knows them."""

from __future__ import annotations

from typing import Protocol

from partage.lab.brokers.shard_host import SimShardHost
from partage.model.topic_partition import TopicPartition


class ClusterDirectory(Protocol):
    """Finds the brokers to which requests about transactions go."""

    @property
    def broker_id(self) -> int:
        """The id of this broker."""

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """Return the coordinator of a transactional id; None if it is unknown."""

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition; None if it is unknown.

        The one of a partition of ``__consumer_offsets`` is the coordinator of its groups.
        """

    def group_host(self, shard: int) -> SimShardHost:
        """Return the host of a group shard on this broker."""
