"""Several brokers with one ZooKeeper, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.raw_client import RawClient
from partage.store.shard_log import shard_of
from partage.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from partage.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from partage.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.list_offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from polled_conditions import eventually

from .brokers import PATIENCE_S, ClusterBroker, bootstrap, brokers
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]


@pytest.fixture(scope="module")
def cluster(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("serving")
    with brokers(directory, zookeeper.connect_string, "/tests/serving", ids=(1, 2, 3)) as running:
        yield running


def admin(*asked: ClusterBroker) -> AdminClient:
    servers = ",".join(broker.address for broker in asked)
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def create(client: AdminClient, name: str, partitions: int = 3, **options: int) -> None:
    made = client.create_topics([NewTopic(name, partitions, **options)], request_timeout=30)
    made[name].result(PATIENCE_S)


def test_all_brokers_show_same_cluster(cluster: Cluster) -> None:
    for broker in cluster.values():
        client = admin(broker)
        shown = client.list_topics(timeout=PATIENCE_S)
        assert {b.id: f"{b.host}:{b.port}" for b in shown.brokers.values()} == {
            n: each.address for n, each in cluster.items()
        }
        assert shown.controller_id == 1
        described = client.describe_cluster().result(PATIENCE_S)
        assert {node.id for node in described.nodes} == {1, 2, 3}


def test_advertised_address_is_shown_by_peers(
    zookeeper: Ensemble, tmp_path: Path, path: str
) -> None:
    with brokers(tmp_path / "all", zookeeper.connect_string, path) as running:
        moved = running[2]
        moved.stop()
        _, _, port = moved.address.rpartition(":")
        moved.advertised = f"localhost:{port}"
        moved.start()
        with RawClient(running[1].address) as raw:

            def shown() -> dict[int, tuple[str, int]]:
                asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
                found = raw.request(DESCRIBE_CLUSTER, asked).brokers
                return {each.broker_id: (each.host, each.port) for each in found}

            eventually(lambda: shown().get(2) == ("localhost", int(port)))
            keys = [f"g{n}" for n in range(40)]

            def coordinators() -> dict[int, str]:
                found = raw.request(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=keys))
                return {each.node_id: each.host for each in found.coordinators}

            eventually(lambda: coordinators() == {1: "127.0.0.1", 2: "localhost"})


def test_partitions_are_spread_over_brokers(cluster: Cluster) -> None:
    create(admin(cluster[2]), "spread", 6)
    for broker in cluster.values():
        shown = admin(broker).list_topics("spread", timeout=PATIENCE_S).topics["spread"]
        leaders = [shown.partitions[index].leader for index in range(6)]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_log_dirs_of_all_brokers_have_each_partition_once(cluster: Cluster) -> None:
    create(admin(cluster[1]), "stored", 6)
    requested = [DescribableLogDirTopic(topic="stored", partitions=list(range(6)))]

    def stored() -> list[int]:
        found: list[int] = []
        for broker in cluster.values():
            with RawClient(broker.address) as raw:
                request = DescribeLogDirsRequest(topics=requested)
                (result,) = raw.request(DESCRIBE_LOG_DIRS, request).results
                assert result.usable_bytes > 0
                found += [p.partition_index for topic in result.topics for p in topic.partitions]
        return sorted(found)

    eventually(lambda: stored() == list(range(6)))


def test_quorum_is_controller_observed_by_other_brokers(cluster: Cluster) -> None:
    partitions = [DescribeQuorumPartition(partition_index=0)]
    topics = [DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=partitions)]
    for broker in cluster.values():
        with RawClient(broker.address) as raw:
            answer = raw.request(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=topics))
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == 1
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert {observer.replica_id for observer in partition.observers} == {2, 3}
        assert {node.node_id: node.listeners[0].port for node in answer.nodes} == {
            node_id: int(each.address.rpartition(":")[2]) for node_id, each in cluster.items()
        }


@pytest.mark.parametrize("factor", [2, 3])
def test_replication_factor_above_one_is_refused(cluster: Cluster, factor: int) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin(cluster[1]), "copied", 1, replication_factor=factor)
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("factor", [-1, 1])
def test_replication_factor_one_is_accepted(cluster: Cluster, factor: int) -> None:
    create(admin(cluster[1]), f"single{factor}", 1, replication_factor=factor)


def test_concurrent_create_topic_succeeds_once(cluster: Cluster) -> None:
    create(admin(cluster[1]), "once")
    with pytest.raises(KafkaException) as refused:
        create(admin(cluster[3]), "once")
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_added_partitions_are_visible_everywhere(cluster: Cluster) -> None:
    create(admin(cluster[1]), "grown", 1)
    client = admin(cluster[2])
    grown = client.create_partitions([NewPartitions("grown", 4)])
    grown["grown"].result(PATIENCE_S)
    for broker in cluster.values():
        shown = admin(broker).list_topics("grown", timeout=PATIENCE_S).topics["grown"]
        assert len(shown.partitions) == 4


def test_recreated_topic_is_empty_everywhere(cluster: Cluster) -> None:
    client = admin(cluster[1])
    create(client, "anew")
    producer = Producer({"bootstrap.servers": bootstrap(cluster)})
    producer.produce("anew", b"old", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    client.delete_topics(["anew"])["anew"].result(PATIENCE_S)
    create(admin(cluster[3]), "anew")
    consumer = Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": "looking"})
    assert consumer.get_watermark_offsets(TopicPartition("anew", 1), PATIENCE_S) == (0, 0)
    consumer.close()


def test_records_and_groups_on_all_brokers(cluster: Cluster) -> None:
    """Groups of all shards on all brokers, and records of all partitions."""
    create(admin(cluster[1]), "flights", 6)
    servers = bootstrap(cluster)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(60):
        producer.produce("flights", str(number).encode(), partition=number % 6)
    assert producer.flush(PATIENCE_S) == 0
    names = {shard_of(name, 6): name for name in (f"group{n}" for n in range(100))}
    assert sorted(names) == list(range(6))
    for name in names.values():
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["flights"])
        read: set[bytes] = set()

        def is_read(consumer: Consumer = consumer, read: set[bytes] = read) -> bool:
            found = consumer.consume(100, 0.2)
            read.update(m.value() for m in found if m.error() is None)
            return len(read) == 60

        eventually(is_read)
        consumer.commit(asynchronous=False)
        consumer.close()
    coordinators = set()
    client = admin(cluster[2])
    for name in names.values():
        described = client.describe_consumer_groups([name])[name].result(PATIENCE_S)
        coordinators.add(described.coordinator.id)
    assert coordinators == {1, 2, 3}
    listed = client.list_consumer_groups().result(PATIENCE_S)
    assert set(names.values()) <= {group.group_id for group in listed.valid}
    assert not listed.errors


def test_partition_of_other_broker_is_not_served(cluster: Cluster, tmp_path: Path) -> None:
    """NOT_LEADER_OR_FOLLOWER makes clients look up the leader."""
    create(admin(cluster[1]), "elsewhere", 3)
    shown = admin(cluster[1]).list_topics("elsewhere", timeout=PATIENCE_S).topics["elsewhere"]
    codes = {
        n: latest(broker.address, "elsewhere", shown.partitions[0].id)
        for n, broker in cluster.items()
    }
    leader = shown.partitions[0].leader
    assert codes == {n: 0 if n == leader else 6 for n in cluster}


def latest(address: str, topic: str, partition: int) -> int:
    """Return the error code of a ListOffsets request to one broker."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp_ms=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    with RawClient(address) as raw:
        answered = raw.request(LIST_OFFSETS, request, 5)
    return int(answered.topics[0].partitions[0].error_code)
