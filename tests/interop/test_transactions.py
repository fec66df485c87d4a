"""Transactional producers of all clients, with Apache Kafka and with Partage."""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop import client_kinds
from interop.committed_offsets import committed_offsets
from interop.members import fresh_name
from interop.oracle.connection import Connection
from interop.peers import paths
from interop.peers.server import BrokerProcess
from interop.peers.tools import tool
from interop.transactions.data_script import DataScript
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from polled_conditions import PATIENCE_S, eventually
from scenario_text import replay

with warnings.catch_warnings():
    # kafka-python reads its definitions through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.errors import CommitFailedError, ProducerFencedError

pytestmark = pytest.mark.interop

#: One script sends 32,767 requests, each of which waits for the disk.
SCRIPTS = [
    pytest.param(
        path,
        id=path.stem,
        marks=[pytest.mark.soak, pytest.mark.timeout(1200)]
        if path.stem == "exhausted_epochs"
        else (),
    )
    for path in sorted((Path(__file__).parent / "transactions").glob("*.txt"))
]


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Name of a new topic with 3 partitions."""
    return create(broker, fresh_name("transactions"))


def create(broker: BrokerProcess, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(PATIENCE_S)
    return name


def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return all values of a topic without open transactions, sorted.

    The coordinator may write the markers of a transaction after its response to the producer.
    """
    eventually(lambda: all(is_stable(broker, topic, partition) for partition in range(3)))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh_name("reader"),
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    values, ended = [], set[int]()
    while len(ended) < 3:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "the consumer does not reach the end of the topic"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return sorted(values)


# The same requests for both brokers.


@pytest.mark.parametrize("path", SCRIPTS)
def test_script_gives_stored_responses(broker: BrokerProcess, topic: str, path: Path) -> None:
    """The files have Apache Kafka's responses; ours are the same."""
    prefix = fresh_name("script") + "-"
    with Connection(broker.bootstrap, "script") as connection:
        eventually(lambda: has_leaders(connection, topic))
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[prefix])
        eventually(
            lambda: not connection.ask(FIND_COORDINATOR, request, 4).coordinators[0].error_code
        )
        expected = path.read_text()
        with DataScript(broker.bootstrap, connection, topic, prefix) as script:
            actual = replay(expected, script.run)
    assert actual == expected


def has_leaders(connection: Connection, topic: str) -> bool:
    """True if the broker leads all partitions: Apache Kafka begins after it has created them."""
    partitions = [ListOffsetsPartition(partition_index=at, timestamp_ms=-1) for at in range(3)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    (found,) = connection.ask(LIST_OFFSETS, request, 7).topics
    return not any(partition.error_code for partition in found.partitions)


# Clients. Each commits a transaction, aborts one, and is fenced by its successor.


def run_confluent(bootstrap: str, topic: str, name: str) -> None:
    def producer() -> Producer:
        created = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        created.init_transactions(PATIENCE_S)
        return created

    def send(one: Producer, value: str) -> None:
        one.begin_transaction()
        for partition in range(3):
            one.produce(topic, f"{value}-{partition}", partition=partition)
        one.flush(PATIENCE_S)

    first = producer()
    send(first, "committed")
    first.commit_transaction(PATIENCE_S)
    send(first, "aborted")
    first.abort_transaction(PATIENCE_S)
    send(first, "fenced")
    second = producer()
    send(second, "successor")
    second.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    error = caught.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)


def run_kafka_python(bootstrap: str, topic: str, name: str) -> None:
    def producer() -> KafkaProducer:
        created = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        created.init_transactions()
        return created

    def send(one: KafkaProducer, value: str) -> None:
        one.begin_transaction()
        sent = [
            one.send(topic, f"{value}-{partition}".encode(), partition=partition)
            for partition in range(3)
        ]
        one.flush(PATIENCE_S)
        for each in sent:
            each.get(PATIENCE_S)

    first = producer()
    send(first, "committed")
    first.commit_transaction()
    send(first, "aborted")
    first.abort_transaction()
    send(first, "fenced")
    second = producer()
    send(second, "successor")
    second.commit_transaction()
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    first.close(timeout=0)
    second.close()


def run_aiokafka(bootstrap: str, topic: str, name: str) -> None:
    async def send(one: AIOKafkaProducer, value: str) -> None:
        await one.begin_transaction()
        for partition in range(3):
            await one.send_and_wait(topic, f"{value}-{partition}".encode(), partition=partition)

    async def scenario() -> None:
        first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        second = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await first.start()
        await send(first, "committed")
        await first.commit_transaction()
        await send(first, "aborted")
        await first.abort_transaction()
        await send(first, "fenced")
        await second.start()
        await send(second, "successor")
        await second.commit_transaction()
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
        await second.stop()
        await first.stop()

    asyncio.run(scenario())


def run_franz_go(bootstrap: str, topic: str, name: str) -> None:
    said = go_peer("transact", bootstrap, "--topic", topic, "--id", name)
    assert said.strip() == "PRODUCER_FENCED"


def run_java(bootstrap: str, topic: str, name: str) -> None:
    options = ["--bootstrap", bootstrap, "--topic", topic, "--id", name]
    said = run_peer(client_kinds.command("java", "transact", options))
    assert said.strip() == "ProducerFencedException"


def go_peer(verb: str, bootstrap: str, *options: str) -> str:
    """Run the peer in Go, and return its output."""
    return run_peer([str(paths.GO_PEER), verb, "--bootstrap", bootstrap, *options])


def run_peer(command: list[str]) -> str:
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    return said.stdout


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "franz-go": run_franz_go,
    "java": run_java,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_client_commits_aborts_and_is_fenced(
    broker: BrokerProcess, topic: str, client: str
) -> None:
    CLIENTS[client](broker.bootstrap, topic, fresh_name(client))
    kept = [f"{value}-{number}" for value in ("committed", "successor") for number in range(3)]
    assert read(broker, topic) == sorted(kept)
    dropped = [f"{value}-{number}" for value in ("aborted", "fenced") for number in range(3)]
    assert read(broker, topic, "read_uncommitted") == sorted(kept + dropped)


# Copies. Each copier writes records and their offsets in transactions, and aborts some of them.

COPIED = [f"{number:03}" for number in range(100)]


@pytest.fixture
def source(broker: BrokerProcess, topic: str) -> str:
    """Name of a topic with the records to copy in its 3 partitions."""
    fill(broker, topic, range(3))
    return topic


def fill(broker: BrokerProcess, topic: str, partitions: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for at, value in enumerate(COPIED):
        producer.produce(topic, value, partition=partitions[at % len(partitions)])
    producer.flush(PATIENCE_S)


def assert_copied_through_aborts(broker: BrokerProcess, topic: str) -> None:
    assert read(broker, topic) == COPIED
    uncommitted = read(broker, topic, "read_uncommitted")
    assert len(uncommitted) > len(COPIED), "no transaction was aborted"


def copy_with_kafka_python(bootstrap: str, source: str, target: str, name: str) -> None:
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=10,
    )
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    count = transactions = 0
    while count < len(COPIED):
        found = consumer.poll(timeout_ms=100)
        if not found:
            continue
        producer.begin_transaction()
        for records in found.values():
            for record in records:
                producer.send(target, record.value, partition=record.partition)
        producer.flush(PATIENCE_S)
        ends = {
            at: OffsetAndMetadata(records[-1].offset + 1, "", -1) for at, records in found.items()
        }
        producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        transactions += 1
        if transactions % 3:
            producer.commit_transaction()
            count += sum(map(len, found.values()))
        else:
            producer.abort_transaction()
            for at in found:
                consumer.seek(at, consumer.committed(at) or 0)
    producer.close()
    consumer.close()


def copy_with_aiokafka(bootstrap: str, source: str, target: str, name: str) -> None:
    async def copy() -> None:
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        async with consumer, producer:
            count = transactions = 0
            while count < len(COPIED):
                found = await consumer.getmany(timeout_ms=100, max_records=10)
                if not found:
                    continue
                await producer.begin_transaction()
                for records in found.values():
                    for record in records:
                        await producer.send(target, record.value, partition=record.partition)
                await producer.flush()
                ends = {at: records[-1].offset + 1 for at, records in found.items()}
                await producer.send_offsets_to_transaction(ends, name)
                transactions += 1
                if transactions % 3:
                    await producer.commit_transaction()
                    count += sum(map(len, found.values()))
                else:
                    await producer.abort_transaction()
                    for at in found:
                        consumer.seek(at, await consumer.committed(at) or 0)

    asyncio.run(copy())


COPIERS = {"kafka-python": copy_with_kafka_python, "aiokafka": copy_with_aiokafka}


@pytest.mark.parametrize("client", COPIERS)
def test_python_client_copies_exactly_once(broker: BrokerProcess, source: str, client: str) -> None:
    """The offsets of an aborted transaction are not committed: the copier reads there again."""
    copied, group = create(broker, fresh_name("copied")), fresh_name("copier")
    COPIERS[client](broker.bootstrap, source, copied, group)
    assert_copied_through_aborts(broker, copied)
    ends = {(source, partition): len(COPIED[partition::3]) for partition in range(3)}
    eventually(lambda: committed_offsets(broker.bootstrap, group, ends) == ends)


def test_confluent_offsets_of_former_member_are_refused(broker: BrokerProcess, source: str) -> None:
    group = fresh_name("left")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.subscribe([source])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment())
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": group})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 1)], metadata, PATIENCE_S)
    error = caught.value.args[0]
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.UNKNOWN_MEMBER_ID, True)
    producer.abort_transaction(PATIENCE_S)
    assert committed_offsets(broker.bootstrap, group, [(source, 0)]) == {}


def test_kafka_python_offsets_of_former_member_are_refused(
    broker: BrokerProcess, source: str
) -> None:
    group = fresh_name("left")
    consumer = KafkaConsumer(
        source, bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
    )
    # kafka-python 3.0.12 may drop its assignment if a poll ends just before the SyncGroup response
    eventually(lambda: consumer.poll(timeout_ms=3_000) or consumer.assignment())
    metadata = consumer.group_metadata()
    consumer.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=group)
    producer.init_transactions()
    producer.begin_transaction()
    ends = {KafkaPythonPartition(source, 0): OffsetAndMetadata(1, "", -1)}
    with pytest.raises(CommitFailedError, match="UnknownMemberIdError"):
        producer.send_offsets_to_transaction(ends, metadata)
    producer.abort_transaction()
    producer.close()
    assert committed_offsets(broker.bootstrap, group, [(source, 0)]) == {}


def test_java_copies_exactly_once(broker: BrokerProcess, topic: str) -> None:
    """Kafka's own test program: it reads, writes, commits offsets in transactions, and aborts some.

    Its client uses transaction version 2. It aborts each transaction with a probability of 1/3.
    """
    copied = create(broker, fresh_name("copied"))
    fill(broker, topic, [0])
    tool(
        *("transactional-copier", broker.bootstrap, "--input-topic", topic),
        *("--input-partition", "0", "--output-topic", copied, "--max-messages", "100"),
        *("--transaction-size", "2", "--consumer-group", fresh_name("copier")),
        *("--transactional-id", fresh_name("copier"), "--enable-random-aborts"),
    )
    assert read(broker, copied) == COPIED
    # Kafka's producer waits 5 ms before it sends. An abort drops records that it has not sent.
    assert len(read(broker, copied, "read_uncommitted")) >= len(COPIED)


def test_franz_go_copies_exactly_once(broker: BrokerProcess, source: str) -> None:
    """Its session reads, writes and commits offsets in transactions, and aborts every third one.

    Its transactional consumer reads the copies.
    """
    copied = create(broker, fresh_name("copied"))
    name = fresh_name("copier")
    options = ["--input", source, "--topic", copied, "--group", name, "--id", name]
    go_peer("copy", broker.bootstrap, *options, "--count", "100")
    assert_copied_through_aborts(broker, copied)
    seen = go_peer("read", broker.bootstrap, "--topic", copied, "--count", "100")
    assert sorted(seen.split()) == COPIED


def test_tool_lists_and_describes_transactions(broker: BrokerProcess, topic: str) -> None:
    """`kafka-transactions` shows an open transaction, and its producer in the partition."""
    at, name = broker.bootstrap, fresh_name("listed")
    producer = Producer({"bootstrap.servers": at, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=1)
    producer.flush(PATIENCE_S)
    listed = {
        line.split()[0]: line.split() for line in tool("transactions", at, "list").splitlines()
    }
    assert listed[name][-1] == "Ongoing"
    head, described = tool("transactions", at, "describe", "--transactional-id", name).splitlines()
    row = dict(zip(head.split("\t"), described.split("\t"), strict=True))
    row = {key.strip(): value.strip() for key, value in row.items()}
    assert row["TransactionState"] == "Ongoing"
    assert row["TopicPartitions"] == f"{topic}-1"
    producers = tool("transactions", at, "describe-producers", "--topic", topic, "--partition", "1")
    head, active = producers.splitlines()
    shown = dict(zip(head.split(), active.split(), strict=True))
    assert (shown["ProducerId"], shown["CurrentTransactionStartOffset"]) == (listed[name][2], "0")
    producer.abort_transaction(PATIENCE_S)
    producers = tool("transactions", at, "describe-producers", "--topic", topic, "--partition", "1")
    assert "None" in producers.splitlines()[1]


def test_tool_terminates_transaction_and_fences_its_producer(
    broker: BrokerProcess, topic: str
) -> None:
    """`kafka-transactions forceTerminateTransaction` aborts an open transaction by its id."""
    name = fresh_name("terminated")
    producer: Any = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, "terminated", partition=0)
    producer.flush(PATIENCE_S)
    tool("transactions", broker.bootstrap, "forceTerminateTransaction", "--transactionalId", name)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert read(broker, topic) == []


def test_transaction_times_out(broker: BrokerProcess, topic: str) -> None:
    """The coordinator aborts, and fences the producer. Kafka's check is every 10 s."""
    producer: Any = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": fresh_name("late"),
            "transaction.timeout.ms": 1_000,
            "message.timeout.ms": 1_000,
            "socket.timeout.ms": 1_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, "late", partition=0)
    producer.flush(PATIENCE_S)

    # The last stable offset passes the record when the transaction is aborted.
    eventually(lambda: end_offsets(broker, topic, 0) == (2, 2))
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert read(broker, topic) == []


def is_stable(broker: BrokerProcess, topic: str, partition: int) -> bool:
    """True if a partition has no open transaction: its last stable offset is its end."""
    last_stable, end = end_offsets(broker, topic, partition)
    return last_stable == end


def end_offsets(broker: BrokerProcess, topic: str, partition: int) -> tuple[int, int]:
    """Return the last stable offset and the end of a partition."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": fresh_name("end"),
                "isolation.level": isolation,
            }
        )
        at = TopicPartition(topic, partition)
        found.append(consumer.get_watermark_offsets(at, PATIENCE_S)[1])
        consumer.close()
    return found[0], found[1]
