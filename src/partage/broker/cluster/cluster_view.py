"""The cluster as this broker's clients see it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from partage.broker.cluster.broker_node import BrokerNode
from partage.log.catalogue.topic_catalogue import TopicDefinition


class ClusterView(Protocol):
    """Live brokers, and the brokers of partitions and groups."""

    @property
    def node(self) -> BrokerNode:
        """This broker."""

    def brokers(self) -> Sequence[BrokerNode]:
        """Return the live brokers, by id."""

    def coordinator(self, group_id: str) -> BrokerNode | None:
        """Return the coordinator of a group, or None while there is none."""

    def transaction_coordinator(self, transactional_id: str) -> BrokerNode | None:
        """Return the coordinator of a transactional id, or None while there is none."""

    def has_all_group_coordinators(self) -> bool:
        """True if each shard of groups has a live owner."""

    def has_all_transaction_coordinators(self) -> bool:
        """True if each shard of transactional ids has a live owner."""

    def group_shard_owner(self, shard: int) -> int | None:
        """Return the id of the broker that owns a shard of groups, or None while none does."""

    def controller_id(self) -> int:
        """Return the broker to send topic changes to; every broker accepts them."""

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        """Return the id of the broker that stores a partition, live or not."""

    def is_up(self, node_id: int) -> bool:
        """True if a broker is live."""

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """True if all these brokers are live, including those that have just registered."""


class SingleBrokerView:
    """A cluster of one broker."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node

    def brokers(self) -> Sequence[BrokerNode]:
        """Return this broker."""
        return [self.node]

    def coordinator(self, group_id: str) -> BrokerNode | None:
        """Return this broker."""
        return self.node

    def transaction_coordinator(self, transactional_id: str) -> BrokerNode | None:
        """Return this broker."""
        return self.node

    def has_all_group_coordinators(self) -> bool:
        """Return True: this broker owns all shards."""
        return True

    def has_all_transaction_coordinators(self) -> bool:
        """Return True: this broker owns all shards."""
        return True

    def group_shard_owner(self, shard: int) -> int | None:
        """Return the id of this broker."""
        return self.node.node_id

    def controller_id(self) -> int:
        """Return the id of this broker."""
        return self.node.node_id

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        """Return the id of this broker."""
        return self.node.node_id

    def is_up(self, node_id: int) -> bool:
        """True for this broker."""
        return node_id == self.node.node_id

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """True if the ids contain only this broker."""
        return all(map(self.is_up, node_ids))
