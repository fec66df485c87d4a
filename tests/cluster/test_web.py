"""The web page of a cluster while a broker fails and returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from partage.store.shard_log import shard_of
from polled_conditions import eventually
from web.page_server import PageServer

from .brokers import OVERRIDES, PATIENCE_S, ClusterBroker, bootstrap, brokers
from .group_client import GroupClient, client_coordinated_by
from .group_events_reader import partition_leaders
from .group_members import FAST_RECONNECT
from .zookeeper_ensemble import Ensemble

SHARDS = int(OVERRIDES["offsets.topic.num.partitions"])

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]


@pytest.fixture
def cluster(zookeeper: Ensemble, path: str, tmp_path: Path) -> Iterator[dict[int, ClusterBroker]]:
    with brokers(tmp_path / "data", zookeeper.connect_string, path) as running:
        yield running


def test_timeline_is_complete_after_failed_broker_returns(
    cluster: dict[int, ClusterBroker],
) -> None:
    """The failed broker's events are read once it is back, and are sorted before later ones."""
    servers = bootstrap(cluster)
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic("flights", 1, replica_assignment=[[2]])
    client.create_topics([topic], request_timeout=30)["flights"].result(PATIENCE_S)
    eventually(lambda: sorted(partition_leaders(cluster).values()) == [1, 2])
    group = client_coordinated_by(cluster, 1, "tower{}".format).group
    settings = {"bootstrap.servers": servers, "group.id": group, "heartbeat.interval.ms": 200}
    with closing(Consumer({**settings, **FAST_RECONNECT})) as member:
        member.subscribe(["flights"])

        def has(partitions: int) -> bool:
            member.consume(100, 0.02)
            return len(member.assignment()) == partitions

        eventually(lambda: has(1))
        with PageServer(servers) as page:
            page.until(f"/groups/{group}", "(1)", "Reported by the coordinator", "member joined")
            cluster[1].kill()
            eventually(lambda: has(1) and GroupClient([cluster[2]], group).find()[0] == 2)
            page.until(f"/groups/{group}", "(2)", "Stable", "member joined")
            with PageServer(servers) as late:
                shown = late.until(
                    f"/groups/{group}", "(2)", "Stable", "Reported by the coordinator"
                )
                assert "member joined" not in shown.text
                assert "the history is incomplete" in shown.text
                cluster[1].start()
                late.until(f"/groups/{group}", "member joined")


def test_timeline_follows_group_to_other_broker(
    cluster: dict[int, ClusterBroker],
) -> None:
    """The former coordinator says that it no longer owns the group, and is not polled again."""
    servers = bootstrap(cluster)
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic("flights", 1, replica_assignment=[[2]])
    client.create_topics([topic], request_timeout=30)["flights"].result(PATIENCE_S)
    cluster[1].kill()
    # A broker that returns gets the last shards.
    group = next(name for n in range(100) if shard_of(name := f"tower{n}", SHARDS) == SHARDS - 1)
    coordinated = GroupClient([cluster[2]], group)
    eventually(lambda: coordinated.find()[0] == 2)
    settings = {"bootstrap.servers": servers, "group.id": group, "heartbeat.interval.ms": 200}
    with closing(Consumer({**settings, **FAST_RECONNECT})) as member:
        member.subscribe(["flights"])

        def has(partitions: int) -> bool:
            member.consume(100, 0.02)
            return len(member.assignment()) == partitions

        eventually(lambda: has(1))
        with PageServer(servers) as page:
            page.until(f"/groups/{group}", "(2)", "Stable", "flights(0)")
            cluster[1].start()
            eventually(lambda: has(1) and coordinated.find()[0] == 1)
            page.until(f"/groups/{group}", "(1)", "Stable", "flights(0)")
