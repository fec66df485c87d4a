"""Repeated kills of the broker during a consume-transform-produce loop: each result exists once."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from partage.testing import BrokerProcess

pytestmark = pytest.mark.slow

RECORDS, BATCH, KILLS = 200, 10, 2
PATIENCE_S = 60.0
#: librdkafka does not always repeat a TxnOffsetCommit after a lost connection, until its timeout.
CALL_TIMEOUT_S = 2.0
SOON: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


class Worker:
    """Copies ``in`` to ``out`` in transactions with their offsets; it survives every error."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.commit_count = 0
        self.aborted_count = 0
        self.committed = threading.Condition()
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            producer = self._producer()
            consumer = self._consumer()
            try:
                while not self.is_stopping:
                    self._copy(producer, consumer)
            except KafkaException:
                self.aborted_count += 1
            finally:
                consumer.close()

    def _producer(self) -> Producer:
        options = {"bootstrap.servers": self._servers, "transactional.id": "copier", **SOON}
        while True:
            producer = Producer(options)
            try:
                producer.init_transactions(PATIENCE_S)
            except KafkaException:
                continue
            return producer

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "copiers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **SOON,
            }
        )
        # Without a group's members: the copier is fenced by its transactional id.
        start = consumer.committed([TopicPartition("in", 0)], PATIENCE_S)[0].offset
        consumer.assign([TopicPartition("in", 0, max(start, 0))])
        return consumer

    def _copy(self, producer: Producer, consumer: Consumer) -> None:
        messages = [m for m in consumer.consume(BATCH, 0.2) if not m.error()]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), partition=message.offset() % 3)
        producer.send_offsets_to_transaction(
            [TopicPartition("in", 0, messages[-1].offset() + 1)],
            consumer.consumer_group_metadata(),
            CALL_TIMEOUT_S,
        )
        producer.commit_transaction(PATIENCE_S)
        with self.committed:
            self.commit_count += 1
            self.committed.notify_all()


def read_committed(servers: str, topic: str, partitions: int) -> list[int]:
    """Return all values of a topic, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **SOON,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values, ended = [], set[int]()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "the last stable offset does not reach the end"
        if message.error():
            ended.add(message.partition())
        else:
            values.append(int(message.value()))
    consumer.close()
    return sorted(values)


@pytest.mark.parametrize("seed", [1])
def test_copier_under_kills_writes_each_result_once(
    partage_broker_process: BrokerProcess, seed: int
) -> None:
    process, draw = partage_broker_process, random.Random(seed)
    servers = process.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, **SOON})
    for future in admin.create_topics([NewTopic("in", 1), NewTopic("out", 3)]).values():
        future.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": servers, **SOON})
    for number in range(RECORDS):
        producer.produce("in", str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0

    worker = Worker(servers)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        for _ in range(KILLS):
            with worker.committed:
                goal = worker.commit_count + draw.randrange(2, 6)
                assert worker.committed.wait_for(
                    lambda goal=goal: worker.commit_count >= goal, PATIENCE_S
                )
            process.kill()
            process.start()
        with worker.committed:
            assert worker.committed.wait_for(
                lambda: worker.commit_count >= RECORDS // BATCH - KILLS, PATIENCE_S
            )
    finally:
        worker.is_stopping = True
        thread.join(PATIENCE_S)
    values = read_committed(servers, "out", 3)
    assert values == sorted(set(values)), "a result exists twice"
    assert values == list(range(len(values))), "a result is missing"
    assert len(values) > RECORDS // 2
