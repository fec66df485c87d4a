"""The brokers that clients are told of, and which of them has what."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from partage.broker.cluster.broker_node import BrokerNode
from partage.log.catalogue.topic_catalogue import TopicDefinition


class ClusterView(Protocol):
    """Who is up, this broker among them."""

    @property
    def node(self) -> BrokerNode:
        """This broker."""

    def brokers(self) -> Sequence[BrokerNode]:
        """All that are up, by id."""

    def coordinator(self, group_id: str) -> BrokerNode | None:
        """Who coordinates a group; None while nobody does."""

    def controller_id(self) -> int:
        """Who is to be asked for topics; any broker would do it."""

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        """The id of the broker that holds a partition, up or not."""

    def is_up(self, node_id: int) -> bool:
        """Whether a broker is up."""

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """Whether all of these are up, one that has come just now among them."""


class SingleBrokerView:
    """A cluster of one."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node

    def brokers(self) -> Sequence[BrokerNode]:
        """This one."""
        return [self.node]

    def coordinator(self, group_id: str) -> BrokerNode | None:
        """This one."""
        return self.node

    def controller_id(self) -> int:
        """This one."""
        return self.node.node_id

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        """This one."""
        return self.node.node_id

    def is_up(self, node_id: int) -> bool:
        """This one is."""
        return node_id == self.node.node_id

    async def are_up(self, node_ids: Collection[int]) -> bool:
        """Whether it is only about this one."""
        return all(map(self.is_up, node_ids))
