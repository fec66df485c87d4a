"""Transactions across several brokers, with real producers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.raw_client import RawClient
from broker.requests import batch, produce_request
from partage.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE
from polled_conditions import PATIENCE_S, eventually

from .brokers import ClusterBroker, bootstrap, brokers, create
from .group_client import client_coordinated_by
from .group_members import FAST_RECONNECT
from .transactional_clients import (
    CommittedReader,
    id_coordinated_by,
    listed_states,
    transaction_coordinator,
    transactional_producer,
    wait_state,
    write,
)
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]
NOT_COORDINATOR = 16


@pytest.fixture(scope="module")
def cluster(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("transactions")
    with brokers(directory, zookeeper.connect_string, "/tests/transactions") as running:
        create(running, "t", [1, 2, 1, 2])
        yield running


@pytest.fixture(autouse=True)
def all_up(cluster: Cluster) -> None:
    """Each test begins with two brokers that share the transactional ids."""
    for broker in cluster.values():
        if not broker.is_running:
            broker.start()
    for node_id in cluster:
        id_coordinated_by(cluster[1], node_id)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with one partition on each broker."""
    name: str = request.node.originalname
    create(cluster, name, [1, 2])
    return name


def test_transactions_on_both_brokers_are_atomic(cluster: Cluster, topic: str) -> None:
    """Each broker coordinates one producer, and both have partitions on both brokers."""
    servers = bootstrap(cluster)
    reader = CommittedReader(servers, topic, [0, 1])
    expected = []
    for node_id in cluster:
        transactional_id = id_coordinated_by(cluster[1], node_id, "atomic{}".format)
        producer = transactional_producer(servers, transactional_id)
        write(producer, topic, b"aborted", 0, 1)
        producer.abort_transaction(PATIENCE_S)
        value = b"by %d" % node_id
        write(producer, topic, value, 0, 1)
        assert sorted(reader.poll()) == sorted(expected)
        producer.commit_transaction(PATIENCE_S)
        expected += [(0, value), (1, value)]
        reader.wait(expected)
        wait_state(cluster[node_id], transactional_id, "CompleteCommit")
        other = cluster[3 - node_id]
        assert transactional_id not in listed_states(other)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        with RawClient(other.address, timeout_s=PATIENCE_S) as raw:
            (described,) = raw.request(DESCRIBE_TRANSACTIONS, request).transaction_states
        assert described.error_code == NOT_COORDINATOR
    reader.close()


def test_leader_adds_partition_at_coordinator_on_another_broker(
    cluster: Cluster, topic: str
) -> None:
    """With transaction version 2, Produce adds the partition (KIP-890)."""
    transactional_id = id_coordinated_by(cluster[1], 2, "adding{}".format)
    with (
        RawClient(cluster[2].address, timeout_s=PATIENCE_S) as coordinator,
        RawClient(cluster[1].address, timeout_s=PATIENCE_S) as leader,
    ):
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=9000)
        identity = coordinator.request(INIT_PRODUCER_ID, init, 5)
        assert identity.error_code == 0
        content = batch(
            b"v",
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request(topic, content, transactional_id=transactional_id)
        produced = leader.request(PRODUCE, request, 12)
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert listed_states(cluster[2])[transactional_id] == "Ongoing"
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=True,
        )
        ended = coordinator.request(END_TXN, end, 5)
        assert ended.producer_epoch == identity.producer_epoch + 1
        # Before the marker arrives, the leader takes the request for a repetition.
        reader = CommittedReader(bootstrap(cluster), topic, [0])
        reader.wait([(0, b"v")])
        reader.close()
        late = leader.request(PRODUCE, request, 12)
        assert late.responses[0].partition_responses[0].error_code


def test_offsets_of_transaction_survive_failover_of_group_coordinator(
    cluster: Cluster, topic: str
) -> None:
    """They are pending while the owner of the group changes, and committed by the marker."""
    servers = bootstrap(cluster)
    group = client_coordinated_by(cluster, 2, "offsets{}".format)
    transactional_id = id_coordinated_by(cluster[1], 1, "offsets{}".format)
    producer = transactional_producer(servers, transactional_id)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group.group, **FAST_RECONNECT})
    write(producer, topic, b"aborted", 0)
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata, PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    write(producer, topic, b"committed", 0)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 8)], metadata, PATIENCE_S)
    assert group.committed("t") == -1
    cluster[2].stop()
    assert group.committed("t") == -1
    producer.commit_transaction(PATIENCE_S)
    eventually(lambda: group.committed("t") == 8)
    group.close()
    consumer.close()


def test_markers_wait_for_killed_leader(cluster: Cluster, topic: str) -> None:
    """The other partition is readable meanwhile; the producer's next transaction waits."""
    servers = bootstrap(cluster)
    transactional_id = id_coordinated_by(cluster[1], 1, "waiting{}".format)
    producer = transactional_producer(servers, transactional_id)
    write(producer, topic, b"1", 0, 1)
    cluster[2].kill()
    producer.commit_transaction(PATIENCE_S)
    reader = CommittedReader(servers, topic, [0])
    reader.wait([(0, b"1")])
    assert listed_states(cluster[1])[transactional_id] == "PrepareCommit"
    cluster[2].start()
    other = CommittedReader(servers, topic, [1])
    other.wait([(1, b"1")])
    wait_state(cluster[1], transactional_id, "CompleteCommit")
    write(producer, topic, b"2", 0, 1)
    producer.commit_transaction(PATIENCE_S)
    other.wait([(1, b"1"), (1, b"2")])
    reader.close()
    other.close()


def test_open_transaction_continues_at_next_coordinator(cluster: Cluster, topic: str) -> None:
    servers = bootstrap(cluster)
    transactional_id = id_coordinated_by(cluster[1], 2, "open{}".format)
    producer = transactional_producer(servers, transactional_id)
    write(producer, topic, b"1", 0)
    cluster[2].kill()
    producer.produce(topic, b"2", partition=0)
    producer.commit_transaction(PATIENCE_S)
    assert transaction_coordinator(cluster[1], transactional_id) == 1
    reader = CommittedReader(servers, topic, [0])
    reader.wait([(0, b"1"), (0, b"2")])
    reader.close()


def test_new_producer_fences_producer_of_other_coordinator(cluster: Cluster, topic: str) -> None:
    """A takeover does not forget the epoch."""
    servers = bootstrap(cluster)
    transactional_id = id_coordinated_by(cluster[1], 2, "fenced{}".format)
    old = transactional_producer(servers, transactional_id)
    write(old, topic, b"old", 0)
    cluster[2].stop()
    new = transactional_producer(servers, transactional_id)
    write(new, topic, b"new", 0)
    new.commit_transaction(PATIENCE_S)
    with pytest.raises(Exception, match="fenced"):
        old.commit_transaction(PATIENCE_S)
    reader = CommittedReader(servers, topic, [0])
    reader.wait([(0, b"new")])
    reader.close()


def test_producer_ids_are_unique(cluster: Cluster) -> None:
    """All brokers allocate, with and without transactional id, before and after a restart."""
    found = []
    for _ in range(2):
        for node_id, broker in cluster.items():
            owned = id_coordinated_by(broker, node_id, f"unique{len(found)}-{{}}".format)
            with RawClient(broker.address, timeout_s=PATIENCE_S) as raw:
                for transactional_id in (None, None, owned):
                    request = InitProducerIdRequest(
                        transactional_id=transactional_id, transaction_timeout_ms=9000
                    )
                    response = raw.request(INIT_PRODUCER_ID, request, 4)
                    assert response.error_code == 0
                    found.append(response.producer_id)
        cluster[2].stop()
        cluster[2].start()
    assert len(set(found)) == len(found) == 12


class FaultyCoordinator(ClusterBroker):
    """A broker that sends itself a signal before its first marker."""

    signal_number = signal.SIGKILL

    @property
    def flag(self) -> Path:
        return self.directory.with_suffix(".flag")

    def command(self) -> list[str]:
        python, *_ = super().command()
        number = str(int(self.signal_number))
        module = ["-m", "cluster.faulty_coordinator", number, str(self.flag)]
        return [python, *module, *super().command()[3:]]


@pytest.fixture
def faulty(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    zookeeper: Ensemble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FaultyCoordinator]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    state = f"zookeeper://{zookeeper.connect_string}/tests/transactions"
    broker = FaultyCoordinator(3, tmp_path / "broker3", state, {})
    broker.signal_number = request.param
    broker.start()
    try:
        yield broker
    finally:
        if broker.is_running:
            broker.send(signal.SIGCONT)
            broker.kill()


def decided_by(faulty: FaultyCoordinator, cluster: Cluster, topic: str) -> Producer:
    """Commit a transaction whose coordinator fails between the decision and the markers."""
    transactional_id = id_coordinated_by(cluster[1], 3, f"{topic}{{}}".format)
    producer = transactional_producer(bootstrap(cluster), transactional_id)
    write(producer, topic, b"1", 0, 1)
    producer.commit_transaction(PATIENCE_S)
    eventually(faulty.flag.exists)
    return producer


@pytest.mark.parametrize("faulty", [signal.SIGKILL], indirect=True)
def test_killed_coordinator_markers_written_by_next_one(
    faulty: FaultyCoordinator, cluster: Cluster, topic: str
) -> None:
    producer = decided_by(faulty, cluster, topic)
    faulty.wait()
    reader = CommittedReader(bootstrap(cluster), topic, [0, 1])
    reader.wait([(0, b"1"), (1, b"1")])
    write(producer, topic, b"2", 0, 1)
    producer.commit_transaction(PATIENCE_S)
    reader.wait([(0, b"1"), (1, b"1"), (0, b"2"), (1, b"2")])
    reader.close()


@pytest.mark.parametrize("faulty", [signal.SIGSTOP], indirect=True)
def test_stopped_coordinator_writes_no_late_marker(
    faulty: FaultyCoordinator, cluster: Cluster, topic: str
) -> None:
    """Its markers would end the producer's next transaction, which has the same epoch."""
    producer = decided_by(faulty, cluster, topic)
    reader = CommittedReader(bootstrap(cluster), topic, [0, 1])
    reader.wait([(0, b"1"), (1, b"1")])
    write(producer, topic, b"aborted", 0, 1)
    faulty.send(signal.SIGCONT)
    eventually(lambda: "gave up shards" in faulty.log_text())
    eventually(lambda: "registered again" in faulty.log_text())
    refused = "marker of a former transaction coordinator refused"
    eventually(lambda: all(refused in broker.log_text() for broker in cluster.values()))
    assert len(reader.poll()) == 2
    producer.abort_transaction(PATIENCE_S)
    write(producer, topic, b"2", 0, 1)
    producer.commit_transaction(PATIENCE_S)
    reader.wait([(0, b"1"), (1, b"1"), (0, b"2"), (1, b"2")])
    reader.close()
