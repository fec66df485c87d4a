"""Misbehaviour of docs/found.md on real brokers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop.members import fresh_name
from interop.peers.server import BrokerProcess
from polled_conditions import PATIENCE_S, eventually
from testing import found_programs
from testing.found_programs import MESSAGE_BYTES_MAX, read_committed, transfer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ORDERS = [b"%d" % number for number in range(20)]


def create_topic(broker: BrokerProcess, partitions: int, **config: str) -> str:
    name = fresh_name("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, partitions, 1, config=settings)
    admin.create_topics([new])[name].result(PATIENCE_S)
    return name


def start_copier(broker: BrokerProcess, source: str, target: str, name: str) -> subprocess.Popen:
    command = [sys.executable, found_programs.__file__, broker.bootstrap, source, target, name]
    return subprocess.Popen(command)


def committed(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    return Counter(asyncio.run(read_committed(broker.bootstrap, topic)))


def has_uncommitted_record(broker: BrokerProcess, topic: str) -> bool:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh_name("group"),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.subscribe([topic])
    try:
        return consumer.poll(5) is not None
    finally:
        consumer.close()


def test_transaction_is_committed_without_a_rejected_record(broker: BrokerProcess) -> None:
    topic = create_topic(broker, 2, max_message_bytes=str(MESSAGE_BYTES_MAX))
    asyncio.run(transfer(broker.bootstrap, topic))
    # The broker may write the markers of the transaction after its response.
    assert eventually(lambda: committed(broker, topic)) == {b"-100": 1}


def test_paused_copier_commits_what_another_has_copied(broker: BrokerProcess) -> None:
    source, target = create_topic(broker, 1), create_topic(broker, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for order in ORDERS:
        producer.produce(source, order)
    assert producer.flush(PATIENCE_S) == 0
    first = start_copier(broker, source, target, f"{source}-first")
    second = None
    try:
        eventually(lambda: has_uncommitted_record(broker, target))
        first.send_signal(signal.SIGSTOP)
        second = start_copier(broker, source, target, f"{source}-second")
        # The open transaction of the first one hides the records of the second one.
        group = f"{source}-copiers"
        eventually(lambda: committed_position(broker, group, source) == len(ORDERS))
        first.send_signal(signal.SIGCONT)
        eventually(lambda: set(committed(broker, target).values()) == {2})
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait(60)
    assert committed(broker, target) == dict.fromkeys(ORDERS, 2)


def committed_position(broker: BrokerProcess, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
        return found.offset
    finally:
        consumer.close()
