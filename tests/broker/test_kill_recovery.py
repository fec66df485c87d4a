"""Repeated kills of the broker under load: nothing acknowledged is lost.

Idempotent producers write and a group of two reads and commits. A seed decides when the broker gets
SIGKILL, counted in acknowledged records. Loss of bytes that were not synced is tested with the
crash disk of ``tests/log``; this test covers processes, sockets and clients.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from partage.testing import BrokerProcess

pytestmark = pytest.mark.slow

TOPIC, GROUP, PARTITIONS = "flights", "tower", 4
PATIENCE_S = 60.0
SOON = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}

Place = tuple[int, int]  # partition and offset


class Told:
    """Acknowledgements that clients received; used by all their threads."""

    def __init__(self) -> None:
        self.acked: dict[Place, bytes] = {}
        self.read: dict[Place, bytes] = {}
        self.committed: dict[int, int] = defaultdict(int)
        self.commits = 0
        self.assignments = 0
        self.owned: dict[int, int] = {}
        self.faults: list[str] = []
        self._changed = threading.Condition()

    @contextmanager
    def changing(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()

    def has_more_than(self, records: int, commits: int) -> bool:
        return len(self.acked) > records and self.commits > commits

    def wait(self, what: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.faults) or what(), PATIENCE_S)
        assert not self.faults, self.faults


def produce(servers: str, name: int, told: Told, stopping: threading.Event) -> None:
    """Send numbered values until the broker is no longer killed; each is sent once."""
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **SOON}
    )

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        with told.changing():
            if error is not None:
                told.faults.append(f"a record was given up: {error}")
            else:
                told.acked[message.partition(), message.offset()] = message.value()

    number = 0
    while not stopping.is_set():
        if len(producer) < 500:
            for _ in range(50):
                value = b"%d-%d" % (name, number)
                producer.produce(TOPIC, value, partition=number % PARTITIONS, callback=on_delivery)
                number += 1
        producer.poll(0.01)
    producer.flush(PATIENCE_S)


def consume(servers: str, name: int, told: Told, stopping: threading.Event) -> None:
    """Read in the group and commit; a later commit makes up for a failed one."""

    def on_assign(consumer: object, partitions: list[TopicPartition]) -> None:
        with told.changing():
            told.assignments += 1
            told.owned[name] = len(partitions)

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **SOON,
        }
    )
    consumer.subscribe([TOPIC], on_assign=on_assign)
    while not stopping.is_set():
        messages = [m for m in consumer.consume(200, 0.05) if m.error() is None]
        if not messages:
            continue
        with told.changing():
            for message in messages:
                told.read[message.partition(), message.offset()] = message.value()
        ends = {m.partition(): m.offset() + 1 for m in messages}
        offsets = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
        try:
            kept = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            continue
        with told.changing():
            told.commits += 1
            for each in kept:
                if each.error is None:
                    told.committed[each.partition] = max(
                        told.committed[each.partition], each.offset
                    )
    consumer.close()


def kept(servers: str) -> dict[Place, bytes]:
    """Return all records of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "auditor", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[Place, bytes] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(5000, 1.0):
            if message.error() is None:
                found[message.partition(), message.offset()] = message.value()
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def commits(servers: str) -> dict[int, int]:
    """Return the committed offsets of the group by partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, PATIENCE_S)}
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(3, 1, marks=pytest.mark.timeout(600)),
        pytest.param(20, 2, marks=[pytest.mark.interop, pytest.mark.timeout(600)]),
        pytest.param(200, 3, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_kills_under_load_lose_nothing_acknowledged(
    partage_broker_process: BrokerProcess, kills: int, seed: int
) -> None:
    broker, chance = partage_broker_process, random.Random(seed)
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        created.result(PATIENCE_S)
    told, producing, consuming = Told(), threading.Event(), threading.Event()
    producers = [
        threading.Thread(target=produce, args=(servers, name, told, producing)) for name in range(2)
    ]
    members = [
        threading.Thread(target=consume, args=(servers, name, told, consuming)) for name in range(2)
    ]
    for thread in (*producers, *members):
        thread.start()
    try:
        told.wait(lambda: told.owned == {0: PARTITIONS // 2, 1: PARTITIONS // 2})
        assignments = told.assignments
        for _ in range(kills):
            records = len(told.acked) + chance.randrange(1, 3000)
            commits_made = told.commits + chance.randrange(1, 4)
            told.wait(partial(told.has_more_than, records, commits_made))
            broker.kill()
            broker.start()
        producing.set()
        for thread in producers:
            thread.join(PATIENCE_S)
        told.wait(lambda: told.read.keys() >= told.acked.keys())
    finally:
        producing.set()
        consuming.set()
        for thread in (*producers, *members):
            thread.join(PATIENCE_S)

    held = kept(servers)
    lost = {place: value for place, value in told.acked.items() if held.get(place) != value}
    assert not lost
    assert len(set(held.values())) == len(held), "a record is there twice"
    assert {place: held.get(place) for place in told.read} == told.read
    found = commits(servers)
    assert all(found[partition] >= end for partition, end in told.committed.items())
    assert told.assignments == assignments, "a kill made the group rebalance"
