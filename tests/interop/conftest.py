"""Brokers that run the same tests: Apache Kafka and Partage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.members import SESSION_MS, fresh_name
from interop.partage_broker import PartageBroker
from interop.peers import install
from interop.peers.kafka import ApacheKafka
from interop.peers.server import BrokerProcess
from polled_conditions import PATIENCE_S

BROKERS: dict[str, Callable[..., BrokerProcess]] = {"apache": ApacheKafka, "partage": PartageBroker}

#: Allow tests of the maximum group size; no other test has as many members. With the consumer
#: protocol, assignments are not delayed, and no session expires while the machine is busy, members
#: restart or Apache Kafka is unreachable. `shorten_sessions` is for members that a test kills.
OVERRIDES = {
    "group.max.size": "8",
    "group.consumer.max.size": "3",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.assignment.interval.ms": "20000",
    "group.consumer.migration.policy": "disabled",
}

PARTITIONS = 12


@pytest.fixture(scope="session")
def peers() -> None:
    """Other projects' software in ``.peers``, fetched if missing."""
    if install.main() != 0:
        pytest.fail("the peers could not be fetched: run python tests/interop/peers/install.py")


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in BROKERS],
)
def broker(request: pytest.FixtureRequest, peers: None) -> Iterator[BrokerProcess]:
    """A running broker, one of each kind for the whole session.

    With ``-n 2 --dist loadgroup`` each kind runs in a separate worker.
    """
    with BROKERS[request.param](overrides=OVERRIDES) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Name of a new topic with 12 partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = fresh_name("topic")
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(PATIENCE_S)
    return name


@pytest.fixture
def partitions(topic: str) -> set[tuple[str, int]]:
    """All partitions of the topic."""
    return {(topic, number) for number in range(PARTITIONS)}
