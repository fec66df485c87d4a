"""A group with the consumer protocol (KIP-848) moves to another broker with its epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from broker.test_consumer_groups import described
from interop.oracle.connection import Connection
from polled_conditions import eventually

from .brokers import PATIENCE_S, ClusterBroker, bootstrap, brokers, create
from .group_client import GroupClient, client_coordinated_by
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]


@pytest.fixture
def cluster(zookeeper: Ensemble, path: str, tmp_path: Path) -> Iterator[Cluster]:
    servers = zookeeper.connect_string
    at_once = {"group.consumer.assignment.interval.ms": "0"}
    with brokers(tmp_path, servers, path, overrides=at_once) as running:
        create(running, "t", [1, 1])
        yield running


def test_group_continues_at_the_next_coordinator(cluster: Cluster) -> None:
    """Same epoch, same assignment: no reconciliation begins again."""
    names = client_coordinated_by(cluster, 2, "moved{}".format)
    group = names.group
    names.close()
    lost: list[object] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": group,
            "group.protocol": "consumer",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.append(partitions))

    def has_both() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    eventually(has_both, patience_s=PATIENCE_S)
    before = description(cluster, group)
    cluster[2].kill()

    def has_moved() -> bool:
        consumer.poll(0.1)
        return description(cluster, group) == before

    eventually(has_moved, patience_s=PATIENCE_S)
    assert (len(consumer.assignment()), lost) == (2, [])
    consumer.close()


def test_members_get_partitions_of_brokers_in_their_racks(
    zookeeper: Ensemble, tmp_path: Path
) -> None:
    servers, path = zookeeper.connect_string, "/tests/racks"
    overrides = {
        "group.consumer.assignors": "cooperative-sticky",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with brokers(tmp_path, servers, path, overrides=overrides, has_racks=True) as running:
        create(running, "t", [1, 2, 2, 1])
        members = [
            Consumer(
                {
                    "bootstrap.servers": bootstrap(running),
                    "group.id": "g",
                    "group.protocol": "consumer",
                    "client.rack": rack,
                    "log_level": 0,
                }
            )
            for rack in ("rack-2", "rack-1")
        ]
        for each in members:
            each.subscribe(["t"])

        def assignments() -> list[list[int]]:
            for each in members:
                each.poll(0.1)
            return [sorted(p.partition for p in each.assignment()) for each in members]

        eventually(lambda: assignments() == [[1, 2], [0, 3]], assignments)
        for each in members:
            each.close()


def description(cluster: Cluster, group: str) -> list[str]:
    """Return the group as its coordinator describes it, or an error."""
    client = GroupClient([each for each in cluster.values() if each.is_running], group)
    coordinator = client.find()[0]
    client.close()
    if not cluster[coordinator].is_running:
        return ["no coordinator"]
    with Connection(cluster[coordinator].address, "describe") as connection:
        return described(connection, group)
