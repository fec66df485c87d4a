"""Injected faults of transactions, with confluent-kafka's producer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from partage.testing import ThreadedBroker
from polled_conditions import eventually

pytestmark = pytest.mark.timeout(600)
QUIET = {"log_level": 0}


@pytest.fixture
def servers(partage_broker: ThreadedBroker) -> str:
    partage_broker.create_topic("t", partitions=2)
    return partage_broker.bootstrap_servers


@pytest.fixture
def producer(servers: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x", **QUIET})
    producer.init_transactions(30)
    return producer


@pytest.fixture
def reader(servers: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    consumer.assign([TopicPartition("t", n, 0) for n in range(2)])
    yield consumer
    consumer.close()


def write(producer: Producer, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce("t", b"%d" % partition, partition=partition)
    assert producer.flush(30) == 0


def read(consumer: Consumer, count: int) -> list[bytes]:
    return sorted(each.value() for each in consumer.consume(count, 30))


def test_held_markers_keep_transaction_prepared(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    faults = partage_broker.faults.transactions
    with faults.hold_markers():
        write(producer, 0, 1)
        producer.commit_transaction(30)
        assert faults.states() == {"x": "PrepareCommit"}
        assert reader.consume(2, 0.2) == []
        assert [reader.get_watermark_offsets(TopicPartition("t", 0))[1]] == [0]
    assert read(reader, 2) == [b"0", b"1"]
    eventually(lambda: faults.states() == {"x": "CompleteCommit"})


def test_held_marker_of_one_partition_keeps_others_readable(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    with partage_broker.faults.transactions.hold_markers("t", 1):
        write(producer, 0, 1)
        producer.commit_transaction(30)
        assert read(reader, 1) == [b"0"]
        assert reader.consume(1, 0.2) == []
    assert read(reader, 1) == [b"1"]


def test_hold_of_partition_without_topic_refused(partage_broker: ThreadedBroker) -> None:
    faults = partage_broker.faults.transactions
    with (
        pytest.raises(ValueError, match="partition=1 without a topic"),
        faults.hold_markers(partition=1),
    ):
        pass


def test_timed_out_transaction_is_aborted_and_its_producer_fenced(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    write(producer, 0)
    partage_broker.faults.transactions.time_out("x")
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(30)
    states = partage_broker.faults.transactions.states
    eventually(lambda: states() == {"x": "CompleteAbort"})
    other = Producer(
        {"bootstrap.servers": partage_broker.bootstrap_servers, "transactional.id": "x", **QUIET}
    )
    other.init_transactions(30)
    write(other, 1)
    other.commit_transaction(30)
    assert read(reader, 1) == [b"1"]


def test_time_out_without_open_transaction_refused(
    partage_broker: ThreadedBroker, producer: Producer
) -> None:
    for transactional_id in ("x", "unknown"):
        with pytest.raises(LookupError, match=f"{transactional_id!r} has no open transaction"):
            partage_broker.faults.transactions.time_out(transactional_id, within_s=0)


def test_fenced_producer_cannot_commit(partage_broker: ThreadedBroker, producer: Producer) -> None:
    write(producer, 0)
    partage_broker.faults.transactions.fence("x")
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(30)
    with pytest.raises(LookupError, match="no producer has initialized 'unknown'"):
        partage_broker.faults.transactions.fence("unknown")


def test_fence_of_open_transaction_gives_the_id_to_another_producer(
    partage_broker: ThreadedBroker, producer: Producer
) -> None:
    """The transaction is aborted, and then the id is initialized again, as by a new process."""
    write(producer, 0)
    partage_broker.faults.transactions.fence("x")
    eventually(lambda: partage_broker.faults.transactions.states() == {"x": "Empty"})


def test_failed_verification_requires_an_abort(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    partage_broker.faults.fail("Produce", "INVALID_TXN_STATE")
    producer.begin_transaction()
    producer.produce("t", b"0", partition=0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_coordinator_killed_between_decision_and_markers_completes_the_commit(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    faults = partage_broker.faults
    with faults.transactions.hold_markers():
        write(producer, 0, 1)
        producer.commit_transaction(30)
        faults.kill_coordinator()
        assert faults.transactions.states() == {}
    assert reader.consume(1, 0.2) == []
    faults.revive_coordinator()
    assert read(reader, 2) == [b"0", b"1"]


def test_reset_releases_held_markers(partage_broker: ThreadedBroker, producer: Producer) -> None:
    with partage_broker.faults.transactions.hold_markers():
        write(producer, 0)
        producer.commit_transaction(30)
        partage_broker.reset()
    assert partage_broker.faults.transactions.states() == {}


def test_reset_removes_transactional_ids_and_open_transactions(
    partage_broker: ThreadedBroker, producer: Producer
) -> None:
    consumer = Consumer(
        {"bootstrap.servers": partage_broker.bootstrap_servers, "group.id": "g", **QUIET}
    )
    write(producer, 0)
    offsets = [TopicPartition("t", 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    consumer.close()
    partage_broker.reset()
    assert partage_broker.faults.transactions.states() == {}
    assert partage_broker.committed("g") == {}
    partage_broker.create_topic("t", partitions=2)
    again = Producer(
        {"bootstrap.servers": partage_broker.bootstrap_servers, "transactional.id": "x", **QUIET}
    )
    again.init_transactions(30)
    write(again, 0)
    again.commit_transaction(30)
    assert [each.value for each in partage_broker.records("t")] == [b"0"]
