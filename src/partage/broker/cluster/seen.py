"""The cluster as clients are told of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from partage.broker.cluster.cluster import Cluster
from partage.broker.node import Node
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.store.shard_log import shard_of


class Seen:
    """See `partage.broker.neighbours.Neighbours`: what this broker has last read of the others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def node(self) -> Node:
        """This broker."""
        return self._cluster.node

    def brokers(self) -> Sequence[Node]:
        """All that are up, by id."""
        return [self._node(broker_id) for broker_id in self._cluster.up()]

    def _node(self, broker_id: int) -> Node:
        doc = self._cluster.roster.brokers.get(broker_id)
        if doc is None or broker_id == self.node.node_id:
            return self.node
        return Node(
            node_id=broker_id,
            host=doc.host,
            port=doc.port,
            cluster_id=self._cluster.cluster_id,
            rack=doc.rack,
        )

    def coordinator(self, group_id: str) -> Node | None:
        """Who has the shard of a group; None while nobody does."""
        shard = shard_of(group_id, self._cluster.shard_count)
        owner = self._cluster.roster.owner(shard)
        if owner is None or (owner == self.node.node_id and not self._cluster.holds(shard)):
            return None
        return self._node(owner)

    def controller_id(self) -> int:
        """The lowest id that is up."""
        return self._cluster.up()[0]

    @staticmethod
    def holder(topic: TopicDefinition, index: int) -> int:
        """The broker that a partition was placed on."""
        return topic.brokers[index]

    def is_up(self, node_id: int) -> bool:
        """Whether a broker is up."""
        return self._cluster.is_up(node_id)

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """Whether all of these are up; looks again before it denies it."""
        if not all(map(self.is_up, node_ids)):
            await self._cluster.look()
        return all(map(self.is_up, node_ids))
