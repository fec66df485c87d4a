"""Spark reads with ``kafka.isolation.level=read_committed``, here and on Apache Kafka."""

import pytest
from confluent_kafka import IsolationLevel, Producer

from interop.peers.kafka import ApacheKafka

from .conftest import Kafka
from .group_state import PATIENCE_S, committed, ends, wait_until
from .test_stream import grouped, stream

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

__all__ = ["stream"]

PARTITIONS = 2
#: Longer than a test, so that an open transaction stays open.
TRANSACTION_TIMEOUT_MS = 900_000

#: The rows of `Topic`; row ``n`` is in partition ``n % 2``.
COMMITTED, ABORTED = [*range(12)], [*range(12, 24)]
OPEN = [[*range(24, 36, 2)], [*range(25, 36, 2)]]
PLAIN = [*range(36, 44)]
PLAIN_OF = [PLAIN[::2], PLAIN[1::2]]
#: The offset of a partition's open transaction, and its end when this transaction has ended.
OPEN_AT, END = 14, 25


@pytest.fixture(
    scope="module", params=["partage", pytest.param("apache", marks=pytest.mark.interop)]
)
def kafka(request, kafka):
    if request.param == "partage":
        yield kafka
        return
    with ApacheKafka() as broker:
        yield Kafka(broker.bootstrap)


class Topic:
    """A topic with a committed and an aborted transaction, and then an open one in each partition.

    Rows without a transaction follow the open transactions.
    """

    def __init__(self, kafka):
        self._kafka = kafka
        self.name = kafka.topic(PARTITIONS)
        self._begin("committed", COMMITTED).commit_transaction(PATIENCE_S)
        self._wait_for_stable([7, 7])
        self._begin("aborted", ABORTED).abort_transaction(PATIENCE_S)
        self._wait_for_stable([OPEN_AT, OPEN_AT])
        self._open = [self._begin(f"open-{n}", rows) for n, rows in enumerate(OPEN)]
        kafka.produce(self.name, [_record(n) for n in PLAIN])

    def commit_in_partition_0(self):
        self._open[0].commit_transaction(PATIENCE_S)
        self._wait_for_stable([END, OPEN_AT])

    def abort_in_partition_1(self):
        self._open[1].abort_transaction(PATIENCE_S)
        self._wait_for_stable([END, END])

    def _begin(self, transactional_id, rows):
        """Write rows in a transaction and return its producer."""
        producer = Producer(
            {
                "bootstrap.servers": self._kafka.servers,
                "transactional.id": f"{self.name}-{transactional_id}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for n in rows:
            producer.produce(self.name, **_record(n))
        assert producer.flush(PATIENCE_S) == 0
        return producer

    def _wait_for_stable(self, offsets):
        """Wait for the markers: the coordinator can write them after its response."""
        level = IsolationLevel.READ_COMMITTED
        wait_until(lambda: ends(self._kafka, self.name, level) == offsets, "stable offsets")


def _record(n):
    return {"value": b"%d" % n, "partition": n % PARTITIONS}


def test_batch_read_returns_committed_rows_only(spark, kafka):
    """Most tasks start within a transaction, because each task reads four offsets."""
    topic = Topic(kafka)
    reader = spark.read.format("partage").options(subscribe=topic.name, maxRecordsPerPartition="4")
    reader = reader.option("kafka.bootstrap.servers", kafka.servers)

    def read(level):
        """Return the rows of a new read, because a DataFrame keeps the offsets of its first."""
        frame = reader.option("kafka.isolation.level", level).load()
        return sorted(int(row.value) for row in frame.collect())

    everything = sorted([*COMMITTED, *ABORTED, *OPEN[0], *OPEN[1], *PLAIN])
    assert read("read_uncommitted") == everything
    assert read("read_committed") == COMMITTED
    topic.commit_in_partition_0()
    assert read("read_committed") == sorted([*COMMITTED, *OPEN[0], *PLAIN_OF[0]])
    topic.abort_in_partition_1()
    assert read("read_committed") == sorted([*COMMITTED, *OPEN[0], *PLAIN])
    assert read("read_uncommitted") == everything


def test_stream_returns_committed_rows_only(stream, kafka):
    """Transactions extend over several batches, and the group commits no offset of an open one."""
    topic = Topic(kafka)
    query = stream(
        columns="value",
        maxOffsetsPerTrigger="7",
        kafka__isolation__level="read_committed",
        **grouped(topic.name),
    )

    def check(rows, offsets):
        query.query.processAllAvailable()
        assert sorted(int(value) for (value,) in query.rows) == sorted(rows)
        wait_until(lambda: committed(kafka, topic.name, topic.name, PARTITIONS) == offsets)

    check(COMMITTED, [OPEN_AT, OPEN_AT])
    topic.commit_in_partition_0()
    check([*COMMITTED, *OPEN[0], *PLAIN_OF[0]], [END, OPEN_AT])
    topic.abort_in_partition_1()
    check([*COMMITTED, *OPEN[0], *PLAIN], [END, END])
