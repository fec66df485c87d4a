"""Injected faults of transactions, with confluent-kafka's producer and a raw client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from broker.raw_client import RawClient
from broker.requests import batch, produce_request, produce_result
from partage.model.errors import ErrorCode
from partage.testing import ThreadedBroker, UnusedFaultError
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE
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


def test_old_producer_aborts_after_failed_verification_and_commits(
    partage_broker: ThreadedBroker, producer: Producer, reader: Consumer
) -> None:
    """librdkafka sends Produce v10, which has no TRANSACTION_ABORTABLE.

    After an abort for this error, librdkafka does not begin again with sequence 0. So the next
    transaction leaves a gap in the partition, and only the second abort raises the epoch.
    """
    partage_broker.faults.transactions.fail_verification("t", 1)
    errors = []
    is_committed = False
    while not is_committed:
        write(producer, 0)
        producer.produce("t", b"1", partition=1)
        try:
            producer.commit_transaction(30)
            is_committed = True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            errors.append(error.args[0].code())
            producer.abort_transaction(30)
    assert errors == [KafkaError.INVALID_TXN_STATE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert partage_broker.faults.pending == 0
    assert read(reader, 2) == [b"0", b"1"]
    found = [(each.partition, each.value) for each in partage_broker.records("t")]
    assert found == [(0, b"0")] * 3 + [(1, b"1")]  # two transactions were aborted


@pytest.mark.parametrize("partition", [None, 0])
def test_new_producer_aborts_after_failed_verification_and_commits(
    partage_broker: ThreadedBroker, servers: str, reader: Consumer, partition: int | None
) -> None:
    """From Produce v12 on, the leader adds the partition, and EndTxn raises the epoch."""
    topic = None if partition is None else "t"
    partage_broker.faults.transactions.fail_verification(topic, partition)
    states = partage_broker.faults.transactions.states
    with RawClient(servers) as raw:
        raw.request(FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=["y"]))
        begun = InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=60_000)
        initialized = raw.request(INIT_PRODUCER_ID, begun)
        assert initialized.error_code == ErrorCode.NONE
        producer_id, epoch = initialized.producer_id, initialized.producer_epoch
        for value, error, is_commit in (
            (b"lost", ErrorCode.TRANSACTION_ABORTABLE, False),
            (b"kept", ErrorCode.NONE, True),
        ):
            payload = batch(
                value,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            )
            request = produce_request("t", payload, transactional_id="y")
            assert produce_result(raw.request(PRODUCE, request, 12)).error_code == error
            assert states() == {"y": "Ongoing" if is_commit else "Empty"}
            ended = raw.request(
                END_TXN,
                EndTxnRequest(
                    transactional_id="y",
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=is_commit,
                ),
                5,
            )
            assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, epoch + 1)
            epoch = ended.producer_epoch
    assert read(reader, 1) == [b"kept"]
    assert [each.value for each in partage_broker.records("t")] == [b"kept"]


def test_failed_verification_of_offsets_leaves_partitions_of_users_alone(
    partage_broker: ThreadedBroker, producer: Producer
) -> None:
    faults = partage_broker.faults
    consumer = Consumer(
        {"bootstrap.servers": partage_broker.bootstrap_servers, "group.id": "g", **QUIET}
    )
    faults.transactions.fail_verification("__consumer_offsets")
    faults.transactions.fail_verification("other", required=False)
    write(producer, 0)
    offsets = [TopicPartition("t", 0, 1)]
    with pytest.raises(KafkaException) as raised:
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    assert raised.value.args[0].code() == KafkaError.INVALID_TXN_STATE
    consumer.close()
    assert partage_broker.committed("g") == {}
    assert faults.pending == 1
    faults.clear()
    assert faults.pending == 0


def test_default_verification_fault_spares_offsets(
    partage_broker: ThreadedBroker, producer: Producer
) -> None:
    faults = partage_broker.faults
    consumer = Consumer(
        {"bootstrap.servers": partage_broker.bootstrap_servers, "group.id": "g", **QUIET}
    )
    faults.transactions.fail_verification(times=2)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition("t", 0, 1)], consumer.consumer_group_metadata(), 30
    )
    consumer.close()
    assert faults.pending == 2
    with pytest.raises(
        UnusedFaultError, match=r"fail_verification\(\) has met 0 of 2 verifications"
    ):
        faults.check_used()
    faults.waive()
    faults.check_used()
    producer.commit_transaction(30)


def test_wrong_arguments_of_failed_verification_are_refused(
    partage_broker: ThreadedBroker,
) -> None:
    faults = partage_broker.faults.transactions
    with pytest.raises(ValueError, match="partition=1 without a topic"):
        faults.fail_verification(partition=1)
    with pytest.raises(ValueError, match="times=0: at least one verification must fail"):
        faults.fail_verification(times=0)


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
