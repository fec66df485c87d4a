"""Broker processes are killed, stopped or shut down: their groups continue at other brokers.

`cluster.test_world_failover` has the cases that virtual time suffices for.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.group_requests import commit_request
from broker.raw_client import RawClient
from group_descriptions import describe_group
from partage.broker.cluster.kazoo_session import KazooSession
from partage.store.zookeeper import Delete
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from polled_conditions import eventually

from .brokers import (
    PATIENCE_S,
    SESSION_MS,
    ClusterBroker,
    bootstrap,
    brokers,
    create,
    know_each_other,
)
from .group_client import GroupClient, client_coordinated_by, error_of
from .group_members import FAST_RECONNECT, ConsumerPair, SuppliedConsumerPair
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]


@pytest.fixture(scope="module")
def cluster(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("failover")
    with brokers(directory, zookeeper.connect_string, "/tests/failover", ids=(1, 2, 3)) as running:
        create(running, "t", [1])
        yield running


@pytest.fixture(autouse=True)
def all_up(cluster: Cluster) -> None:
    """Each test begins with three brokers that share the groups."""
    for broker in cluster.values():
        if not broker.is_running:
            broker.start()
    eventually(lambda: know_each_other(cluster))


def test_stopped_coordinator_hands_over_immediately(cluster: Cluster) -> None:
    """The session need not expire: the groups have moved before the process has ended."""
    group = client_coordinated_by(cluster, 2, "ended{}".format)
    joined = group.join_and_sync()
    assert group.commit("t", 42, joined) == 0
    cluster[2].stop()
    assert group.heartbeat(joined) == 0
    assert group.committed("t") == 42
    group.close()


def test_restarted_broker_registers_immediately(cluster: Cluster) -> None:
    """It may replace its registration: the data directory proves that it is the same broker."""
    group = client_coordinated_by(cluster, 2, "again{}".format)
    joined = group.join_and_sync()
    cluster[2].kill()
    cluster[2].start()
    assert group.heartbeat(joined) == 0
    assert group.commit("t", 1, joined) == 0
    group.close()


def test_returning_broker_applies_topic_changes(cluster: Cluster) -> None:
    """It applies the topic changes when it is back: one created, one deleted, one grown."""
    for name in ("going", "growing"):
        create(cluster, name, [2])
    producer = Producer({"bootstrap.servers": bootstrap(cluster), "log_level": 0})
    producer.produce("growing", b"kept", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert (cluster[2].directory / "going-0").exists()
    cluster[2].kill()
    client = AdminClient({"bootstrap.servers": cluster[1].address, "log_level": 0})
    client.delete_topics(["going"], request_timeout=30)["going"].result(PATIENCE_S)
    from confluent_kafka.admin import NewPartitions

    grown = NewPartitions("growing", 2, replica_assignment=[[1]])
    client.create_partitions([grown], request_timeout=30)["growing"].result(PATIENCE_S)
    cluster[2].start()
    assert not (cluster[2].directory / "going-0").exists()
    shown = AdminClient({"bootstrap.servers": cluster[2].address, "log_level": 0}).list_topics(
        timeout=PATIENCE_S
    )
    assert "going" not in shown.topics
    assert len(shown.topics["growing"].partitions) == 2
    reader = Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": "r", **FAST_RECONNECT})
    assert reader.get_watermark_offsets(TopicPartition("growing", 0), PATIENCE_S) == (0, 1)
    reader.close()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.interop)]
)
def test_real_members_continue_without_rebalance(cluster: Cluster, number: signal.Signals) -> None:
    """Their partitions are on other brokers, so reading continues too."""
    topic = f"flights{int(number)}"
    create(cluster, topic, [1, 3, 1, 3])
    group = client_coordinated_by(cluster, 2, f"real{int(number)}-{{}}".format).group
    members = SuppliedConsumerPair(cluster, group, topic, partitions=4)
    try:
        members.wait_shared()
        assigned = members.assigned
        before = describe_group(cluster[1].address, group)
        cluster[2].send(number)
        if number is signal.SIGKILL:
            cluster[2].wait()
        members.wait_commits()
        eventually(lambda: GroupClient([cluster[1], cluster[3]], group).find()[0] != 2)
        members.wait_commits()
        after = describe_group(cluster[1].address, group)
        assert after.coordinator is not None
        assert after.coordinator.id in (1, 3)
        assert {m.member_id for m in after.members} == {m.member_id for m in before.members}
        assert assigned == members.assigned
        members.check_all_was_read_once()
    finally:
        if number is signal.SIGSTOP:
            cluster[2].send(signal.SIGCONT)
        members.stop()


def test_zookeeper_suspended_and_resumed(
    zookeeper: Ensemble, cluster: Cluster, tmp_path: Path
) -> None:
    """Without ZooKeeper no group is served, since ownership is unknown; with it they continue."""
    group = client_coordinated_by(cluster, 1, "silent{}".format)
    joined = group.join_and_sync()
    assert group.commit("t", 42, joined) == 0
    server = zookeeper.leader
    server.signal(signal.SIGSTOP)
    try:
        time.sleep(SESSION_MS / 1000 * 1.2)  # the brokers' leases must end by their clocks
        with RawClient(cluster[1].address, timeout_s=PATIENCE_S) as raw:
            raw.send(OFFSET_COMMIT, commit_request(group.group, "t", {0: 43}, joined))
            assert raw.is_silent(1.0)
            producer = Producer({"bootstrap.servers": bootstrap(cluster), **FAST_RECONNECT})
            producer.produce("t", b"records go on", partition=0)
            assert producer.flush(PATIENCE_S) == 0
            server.signal(signal.SIGCONT)
            assert error_of(raw.receive()) in (0, 16)
    finally:
        server.signal(signal.SIGCONT)
    assert group.commit("t", 44, joined) == 0
    assert group.committed("t") == 44
    assert group.heartbeat(joined) == 0
    group.close()


@pytest.mark.interop
def test_zookeeper_killed_and_restarted(zookeeper: Ensemble, cluster: Cluster) -> None:
    group = client_coordinated_by(cluster, 3, "restarted{}".format)
    joined = group.join_and_sync()
    assert group.commit("t", 42, joined) == 0
    server = zookeeper.leader
    server.kill()
    server.start()
    zookeeper.wait_ready()
    assert group.commit("t", 43, joined) == 0
    assert group.committed("t") == 43
    assert group.heartbeat(joined) == 0
    group.close()


@pytest.mark.interop
def test_librdkafka_member_is_assigned_partitions_of_dead_broker(cluster: Cluster) -> None:
    """A new member is assigned all of them, reads the available ones, and the others later."""
    topic = "whole"
    create(cluster, topic, [1, 2, 3])
    servers = bootstrap(cluster)
    producer = Producer({"bootstrap.servers": servers, **FAST_RECONNECT})
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    cluster[2].kill()
    group = GroupClient([cluster[1], cluster[3]], "whole")
    eventually(lambda: group.find()[0] != 2)
    read: set[int] = set()
    options = {"group.id": group.group, "auto.offset.reset": "earliest", **FAST_RECONNECT}
    theirs = Consumer({"bootstrap.servers": servers, **options})
    theirs.subscribe([topic])

    def reads(wanted: set[int]) -> bool:
        read.update(m.partition() for m in theirs.consume(10, 0.1) if m.error() is None)
        return read == wanted

    eventually(lambda: reads({0, 2}))
    assert {each.partition for each in theirs.assignment()} == {0, 1, 2}
    cluster[2].start()
    eventually(lambda: reads({0, 1, 2}))
    theirs.close()


def test_removed_registration_is_restored(zookeeper: Ensemble, cluster: Cluster) -> None:
    """An operator removed it; the broker registers again because it is live."""
    group = client_coordinated_by(cluster, 3, "removed{}".format)
    joined = group.join_and_sync()

    async def remove() -> None:
        session = await KazooSession.begin(zookeeper.connect_string, 10_000, PATIENCE_S)
        await session.transact([Delete("/tests/failover/brokers/3")])
        while await session.read("/tests/failover/brokers/3") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await session.end()

    asyncio.run(remove())
    assert group.heartbeat(joined) == 0
    assert group.commit("t", 5, joined) == 0
    assert cluster[3].is_running
    group.close()


@pytest.mark.interop
def test_rolling_restart_is_unnoticed(cluster: Cluster) -> None:
    """Three restarts, each group and partition is unavailable once: no rebalance, no loss."""
    create(cluster, "rolling", [1, 2, 3])
    servers = bootstrap(cluster)
    # Without idempotence, a retried record could be stored twice.
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, **FAST_RECONNECT}
    )
    members = ConsumerPair(servers, "rolling", "rolling")
    sent = 0

    def reads_all() -> bool:
        return len(members.read) == sent

    try:
        members.wait(lambda: sum(members.theirs_assigned) + sum(members.ours_assigned) >= 3)
        members.wait(lambda: bool(members.theirs_assigned and members.ours_assigned))
        settled: list[tuple[int, int]] = []

        def is_settled() -> bool:
            settled.append((len(members.theirs_assigned), len(members.ours_assigned)))
            return len(settled) > 100 and len(set(settled[-100:])) == 1

        members.wait(is_settled)
        for broker in cluster.values():
            for partition in range(3):
                producer.produce("rolling", b"x", partition=partition)
                sent += 1
            broker.stop()
            broker.start()
            assert producer.flush(PATIENCE_S) == 0
            members.wait(reads_all)
        assert settled[-1] == (len(members.theirs_assigned), len(members.ours_assigned))
    finally:
        members.stop()
