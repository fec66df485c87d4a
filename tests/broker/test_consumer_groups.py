"""Groups with the consumer protocol (KIP-848) on a whole broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from interop.consumer_groups.script import ConsumerGroupScript
from interop.oracle.connection import Connection
from partage.testing import BrokerProcess, ThreadedBroker
from scenario_text import replay

from .test_group_events import read as read_events
from .test_group_events import until as until_events

SCRIPTS = sorted(
    (Path(__file__).parents[1] / "interop" / "consumer_groups").glob("*.txt"),
    key=lambda path: path.stem,
)
PATIENCE_S = 30.0
FAST = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
}


@pytest.mark.partage_broker(
    {
        "group.consumer.migration.policy": "disabled",
        "group.consumer.max.size": 3,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.heartbeat.interval.ms": 500,
    }
)
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_gives_the_responses_of_kafka(broker: ThreadedBroker, path: Path) -> None:
    """`interop.test_consumer_groups` compares the same files with Apache Kafka."""
    with Connection(broker.bootstrap_servers, "script") as connection:
        expected = path.read_text()
        assert replay(expected, ConsumerGroupScript(connection, "x-").run) == expected


class Members:
    """Consumers of one group that are polled in turns."""

    def __init__(self, servers: str, topic: str = "t", **settings: Any) -> None:
        self._config = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **settings,
        }
        self._topic = topic
        self._stack = ExitStack()
        self.running: list[Consumer] = []
        self.read: list[tuple[int, int]] = []
        self.lost: list[int] = []

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, **settings: Any) -> Consumer:
        consumer = Consumer({**self._config, **settings})
        self._stack.callback(consumer.close)
        consumer.subscribe([self._topic], on_lost=self._on_lost)
        self.running.append(consumer)
        return consumer

    def _on_lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.lost += [each.partition for each in partitions]

    def leave(self, consumer: Consumer) -> None:
        self.running.remove(consumer)
        consumer.close()

    def shares(self) -> list[int]:
        return sorted(len(each.assignment()) for each in self.running)

    def poll_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, (self.shares(), self.read)
            for consumer in self.running:
                message = consumer.poll(0.02)
                if message is None:
                    continue
                if message.error() is None:
                    self.read.append((message.partition(), message.offset()))
                else:
                    assert message.error().code() != KafkaError._FATAL, message.error()


def produce(servers: str, count: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce("t", b"", partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def test_members_share_partitions_and_resume_from_commits(broker: ThreadedBroker) -> None:
    broker.create_topic("t", 4)
    produce(broker.bootstrap_servers, 8)
    with Members(broker.bootstrap_servers) as group:
        first = group.join()
        group.poll_until(lambda: len(group.read) == 8)
        first.commit(asynchronous=False)
        group.join()
        group.poll_until(lambda: group.shares() == [2, 2])
        produce(broker.bootstrap_servers, 4)
        group.poll_until(lambda: len(group.read) == 12)
        for member in group.running:
            member.commit(asynchronous=False)
        group.leave(first)
        group.poll_until(lambda: group.shares() == [4])
        assert len(set(group.read)) == 12
    assert set(broker.committed("g").values()) == {3}


def test_expired_member_loses_its_partitions(broker: ThreadedBroker) -> None:
    broker.create_topic("t", 4)
    with Members(broker.bootstrap_servers) as group:
        group.join(**{"client.id": "a"})
        group.join(**{"client.id": "b"})
        group.poll_until(lambda: group.shares() == [2, 2])
        broker.faults.expire("g", client_id="a")
        group.poll_until(lambda: len(group.lost) == 2 and group.shares() == [2, 2])


def test_new_partitions_and_topics_are_assigned(broker: ThreadedBroker) -> None:
    broker.create_topic("ta", 1)
    with Members(
        broker.bootstrap_servers, "^t.*", **{"topic.metadata.refresh.interval.ms": 200}
    ) as group:
        group.join()
        group.poll_until(lambda: group.shares() == [1])
        broker.create_topic("tb", 2)
        broker.run(broker.broker.log_manager.add_partitions("ta", 3))
        group.poll_until(lambda: group.shares() == [5])


def test_unknown_assignor_is_fatal(broker: ThreadedBroker) -> None:
    broker.create_topic("t", 1)
    with Members(broker.bootstrap_servers) as group:
        member = group.join(**{"group.remote.assignor": "other"})
        message = member.poll(PATIENCE_S)
        assert message is not None
        assert message.error().code() == KafkaError._FATAL


def test_stale_commit_is_refused(broker: ThreadedBroker) -> None:
    broker.create_topic("t", 1)
    with Members(broker.bootstrap_servers) as group:
        group.join()
        group.poll_until(lambda: group.shares() == [1])
        outsider = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        with pytest.raises(KafkaException) as caught:
            outsider.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        outsider.close()
        assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, overrides=FAST)
    running.start()
    yield running
    running.stop()


def test_members_survive_kill_of_the_broker(process: BrokerProcess) -> None:
    """Epochs and assignments are durable: no member loses its partitions."""
    servers = process.bootstrap_servers
    produce(servers, 1, 1)
    with Members(servers) as group, Connection(servers, "before") as before:
        group.join()
        group.poll_until(lambda: group.shares() == [1])
        group.running[0].commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        found = described(before)
        process.kill()
        process.start()
        with Connection(servers, "after") as after:
            assert described(after) == found
        produce(servers, 1, 1)
        group.poll_until(lambda: (0, 1) in group.read)
        group.running[0].commit(asynchronous=False)
        assert group.lost == []
        with Connection(servers, "at the end") as at_end:
            assert described(at_end) == found
    events = read_events(servers, until_events("loaded"))
    assert events[-1].members is not None, "a reader of the events sees them, too"
    assert [each.assigned for each in events[-1].members] == [{"t": [0]}]


def described(connection: Connection, group: str = "g") -> list[str]:
    """Return a group as `ConsumerGroupScript` shows it."""
    script = ConsumerGroupScript(connection, "", group)
    return script.run("describe")
