"""A hanging transaction: Kafka's tool and ours find and abort it, on Apache Kafka and Partage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from console.cli import PartageCli
from interop.conftest import BROKERS, grouped_brokers
from interop.members import fresh_name
from interop.oracle.connection import Connection
from interop.peers.kafka import ApacheKafka
from interop.peers.server import BrokerProcess
from interop.peers.tools import tool
from partage.model.errors import ErrorCode
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch
from polled_conditions import PATIENCE_S, eventually

pytestmark = pytest.mark.interop

#: The first version that Apache Kafka 4 still supports; it does not add the partition.
_OLD_VERSION = 9
#: In the past, because Kafka's tool finds only transactions whose last record is a minute old.
_TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="module", params=grouped_brokers("hanging"))
def unverified(request: pytest.FixtureRequest, peers: None) -> Iterator[BrokerProcess]:
    """A broker that accepts transactional records which their coordinator does not know."""
    overrides = {"transaction.partition.verification.enable": "false"}
    with BROKERS[request.param](overrides=overrides) as running:
        yield running


@pytest.fixture
def topic(unverified: BrokerProcess) -> str:
    """A topic with a hanging transaction from offset 0 on."""
    name = fresh_name("hanging")
    admin = AdminClient({"bootstrap.servers": unverified.bootstrap})
    keep = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(name, 1, 1, config=keep)])[name].result(PATIENCE_S)
    with Connection(unverified.bootstrap, "lost") as connection:
        producer_id = allocate_producer_id(connection)
        batch = encode_batch(
            [SimpleRecord(None, b"hangs", timestamp_ms=_TIMESTAMP_MS)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        produce = ProduceRequest(
            transactional_id="lost",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceTopic(name=name, partition_data=[ProducePartition(index=0, records=[batch])])
            ],
        )
        response = connection.ask(PRODUCE, produce, _OLD_VERSION)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == ErrorCode.NONE
    return name


def allocate_producer_id(connection: Connection) -> int:
    """Return a new id. At first, Apache Kafka's broker has no block of ids, and refuses."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    responses = []

    def is_allocated() -> bool:
        responses.append(connection.ask(INIT_PRODUCER_ID, request, 4))
        return responses[-1].error_code == ErrorCode.NONE

    eventually(is_allocated)
    return responses[-1].producer_id


def ends(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    """Return the last stable offset and the end offset."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": fresh_name("end"),
                "isolation.level": isolation,
            }
        )
        found.append(consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1])
        consumer.close()
    return found[0], found[1]


def test_partage_aborts_hanging_transaction(unverified: BrokerProcess, topic: str) -> None:
    partage = PartageCli(unverified.bootstrap)
    assert ends(unverified, topic) == (0, 1)
    searched = ["transactions", "find-hanging", topic, "--max-transaction-timeout-ms", "0", "-J"]
    (found,) = partage(*searched).json["transactions"]
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 0)
    partage("transactions", "abort", f"{topic}:0", "--start-offset", 0, "--yes")
    assert ends(unverified, topic) == (2, 2)
    assert partage(*searched).json == {"transactions": []}


def test_kafka_tool_aborts_hanging_transaction(unverified: BrokerProcess, topic: str) -> None:
    at = unverified.bootstrap
    searched = ["find-hanging", "--topic", topic, "--max-transaction-timeout", "0"]
    head, *rows = tool("transactions", at, *searched).splitlines()
    assert "StartOffset" in head
    if isinstance(unverified, ApacheKafka):  # Its last timestamp is that of the record, not now.
        (row,) = rows
        assert row.split()[:2] == [topic, "0"]
    abort = ["abort", "--topic", topic, "--partition", "0", "--start-offset", "0"]
    tool("transactions", at, *abort)
    assert ends(unverified, topic) == (2, 2)
