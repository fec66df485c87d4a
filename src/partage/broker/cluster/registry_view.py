"""The cluster view of a broker that is a cluster member."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_membership import ClusterMembership
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.store.shard_log import shard_of


class RegistryView:
    """Implements `partage.broker.cluster.cluster_view.ClusterView` with the last state of the
    registry.
    """

    def __init__(self, cluster: ClusterMembership) -> None:
        self._membership = cluster

    @property
    def node(self) -> BrokerNode:
        """This broker."""
        return self._membership.node

    def brokers(self) -> Sequence[BrokerNode]:
        """Return the live brokers, by id."""
        return [self._node(broker_id) for broker_id in self._membership.live_broker_ids()]

    def _node(self, broker_id: int) -> BrokerNode:
        doc = self._membership.registry.brokers.get(broker_id)
        if doc is None or broker_id == self.node.node_id:
            return self.node
        return BrokerNode(
            node_id=broker_id,
            host=doc.host,
            port=doc.port,
            cluster_id=self._membership.cluster_id,
            rack=doc.rack,
        )

    def coordinator(self, group_id: str) -> BrokerNode | None:
        """Return the owner of the group's shard, or None while no broker owns it."""
        owner = self._owner(shard_of(group_id, self._membership.shard_count))
        return None if owner is None else self._node(owner)

    def transaction_coordinator(self, transactional_id: str) -> BrokerNode | None:
        """Return the owner of the shard of a transactional id, or None while no broker owns it."""
        shard = shard_of(transactional_id, self._membership.transaction_shard_count)
        owner = self._owner(self._membership.shard_count + shard)
        return None if owner is None else self._node(owner)

    def has_all_group_coordinators(self) -> bool:
        """True if each shard of groups has a live owner."""
        return all(self._owner(shard) is not None for shard in range(self._membership.shard_count))

    def has_all_transaction_coordinators(self) -> bool:
        """True if each shard of transactional ids has a live owner."""
        first = self._membership.shard_count
        shards = range(first, first + self._membership.transaction_shard_count)
        return all(self._owner(shard) is not None for shard in shards)

    def group_shard_owner(self, shard: int) -> int | None:
        """Return the owner of a shard of groups, or None while no broker owns it."""
        return self._owner(shard) if 0 <= shard < self._membership.shard_count else None

    def _owner(self, shard: int) -> int | None:
        owner = self._membership.registry.owner(shard)
        if owner == self.node.node_id and not self._membership.owns(shard):
            return None
        return owner

    def controller_id(self) -> int:
        """Return the lowest id of a live broker."""
        return self._membership.live_broker_ids()[0]

    @staticmethod
    def broker_of(topic: TopicDefinition, index: int) -> int:
        """Return the broker to which the partition was assigned."""
        return topic.brokers[index]

    def is_up(self, node_id: int) -> bool:
        """True if a broker is live."""
        return self._membership.is_up(node_id)

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """True if all these brokers are live; reads the registry again before it returns False."""
        if not all(map(self.is_up, node_ids)):
            await self._membership.refresh_brokers()
        return all(map(self.is_up, node_ids))
