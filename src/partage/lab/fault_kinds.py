"""The names of the faults of worlds, by the worlds that may have them."""

from __future__ import annotations

from typing import NamedTuple


class FaultKinds(NamedTuple):
    """The names of all faults: for any world, for several brokers, for topics, for the whole
    machine, for wall clocks, for transactional producers, for members with the consumer protocol,
    for groups with members of both protocols, for connections between brokers, for markers of
    transactions, for compacted logs, for ZooKeeper, for appends to logs of shards.
    """

    common: tuple[str, ...]
    cluster: tuple[str, ...]
    topics: tuple[str, ...]
    machine: tuple[str, ...]
    wall_clocks: tuple[str, ...]
    transactions: tuple[str, ...]
    consumers: tuple[str, ...]
    migrations: tuple[str, ...]
    links: tuple[str, ...]
    markers: tuple[str, ...]
    compactions: tuple[str, ...]
    zookeeper: tuple[str, ...]
    appends: tuple[str, ...]

    def all(self) -> tuple[str, ...]:
        """Return the names of all faults."""
        groups = self.common + self.cluster + self.topics + self.machine + self.wall_clocks
        groups += self.transactions + self.consumers + self.migrations
        return groups + self.links + self.markers + self.compactions + self.zookeeper + self.appends
