"""One broker and one Spark session for all tests here: a session needs half a minute to start.

The tests of the group `spark` share the session, so they run in one process of pytest-xdist. Tests
that start Spark programs also have the group `processes`. pytest-xdist joins the names of both, so
these tests run in another process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from group_descriptions import describe_group
from partage.client import LoopThread
from partage.testing import ThreadedBroker
from polled_conditions import PATIENCE_S, eventually

from .reader_driver import ReaderDriver


class Kafka:
    """A broker, with helpers that use another Kafka client."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._made = 0

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic without a retention limit and return its name."""
        self._made += 1
        return self.create(f"topic{self._made}", partitions, **config)

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic with this name."""
        made = self._admin.create_topics(
            [NewTopic(name, partitions, 1, config={"retention.ms": "-1"} | config)]
        )
        made[name].result(PATIENCE_S)
        return name

    def widen(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def produce(self, topic: str, records: list[dict], **config: object) -> None:
        """Produce records, given as arguments of ``Producer.produce``, and wait for all of them.

        They keep their order: a batch must not overtake one that the producer sends again.
        """
        in_order = {"max.in.flight.requests.per.connection": 1}
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 20, **in_order, **config}
        )
        failures: list[object] = []

        def on_delivery(error: object, message: object) -> None:
            if error:
                failures.append(error)

        # Apache Kafka acknowledges a new topic before all its brokers list its partitions.
        wanted = {record["partition"] for record in records if "partition" in record}
        eventually(lambda: wanted <= {*producer.list_topics(topic).topics[topic].partitions})
        for record in records:
            producer.produce(topic, on_delivery=on_delivery, **record)
        assert producer.flush(PATIENCE_S) == 0
        assert failures == []

    def protocol(self, group: str) -> str:
        """Return the assignor that a group has selected."""
        return describe_group(self.servers, group).protocol or ""

    @contextmanager
    def blocked_loop(self, loop: LoopThread) -> Iterator[None]:
        """Block a client's event loop, as if its process were stopped."""
        goes_on = threading.Event()

        async def block() -> None:
            goes_on.wait()

        future = loop.submit(block())
        try:
            yield
        finally:
            goes_on.set()
            future.result(PATIENCE_S)

    def cut(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(topic, partition, before)
        self._admin.delete_records([at])[at].result(PATIENCE_S)


@pytest.fixture(scope="session")
def kafka():
    with ThreadedBroker({"log.cleaner.backoff.ms": "20"}) as broker:
        yield Kafka(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from partage.spark import prepare_java

    prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def query(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ReaderDriver]]:
    """Create query drivers that stop at the end of the test."""
    monkeypatch.setattr("partage.spark.stream.reader._on_sigterm", lambda stop: None)
    made: list[ReaderDriver] = []

    def make(servers: str | None = None, **options: str) -> ReaderDriver:
        made.append(one := ReaderDriver(servers or kafka.servers, **options))
        return one

    yield make
    for one in made:
        one.stop()
