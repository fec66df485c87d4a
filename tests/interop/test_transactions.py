"""Transactional producers of all clients, with Apache Kafka and with Partage."""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError

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
    assert caught.value.args[0].fatal()


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
    with pytest.raises(KafkaPythonError):
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
        with pytest.raises(AioKafkaError):
            await first.commit_transaction()
        await second.stop()
        await first.stop()

    asyncio.run(scenario())


def run_franz_go(bootstrap: str, topic: str, name: str) -> None:
    said = go_peer("transact", bootstrap, "--topic", topic, "--id", name)
    assert said.strip() in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


def go_peer(verb: str, bootstrap: str, *options: str) -> str:
    """Run the peer in Go, and return its output."""
    command = [str(paths.GO_PEER), verb, "--bootstrap", bootstrap, *options]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    return said.stdout


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "franz-go": run_franz_go,
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


def test_java_copies_exactly_once(broker: BrokerProcess, topic: str) -> None:
    """Kafka's own test program: it reads, writes, commits offsets in transactions, and aborts some.

    Its client uses transaction version 2.
    """
    copied = create(broker, fresh_name("copied"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = [f"{number:03}" for number in range(100)]
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(PATIENCE_S)
    tool(
        *("transactional-copier", broker.bootstrap, "--input-topic", topic),
        *("--input-partition", "0", "--output-topic", copied, "--max-messages", "100"),
        *("--transaction-size", "7", "--consumer-group", fresh_name("copier")),
        *("--transactional-id", fresh_name("copier"), "--enable-random-aborts"),
    )
    assert read(broker, copied) == values


def test_franz_go_copies_exactly_once(broker: BrokerProcess, topic: str) -> None:
    """Its session reads, writes and commits offsets in transactions, and aborts every third one.

    Its transactional consumer reads the copies.
    """
    copied = create(broker, fresh_name("copied"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = [f"{number:03}" for number in range(100)]
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % 3)
    producer.flush(PATIENCE_S)
    name = fresh_name("copier")
    options = ["--input", topic, "--topic", copied, "--group", name, "--id", name]
    go_peer("copy", broker.bootstrap, *options, "--count", "100")
    assert read(broker, copied) == values
    seen = go_peer("read", broker.bootstrap, "--topic", copied, "--count", "100")
    assert sorted(seen.split()) == values
    uncommitted = read(broker, copied, "read_uncommitted")
    assert len(uncommitted) > len(values), "no transaction was aborted"


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
