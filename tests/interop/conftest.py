"""Brokers that run the same tests: Apache Kafka and Partage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from _pytest.mark import ParameterSet
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


@pytest.fixture(scope="session")
def running_broker(peers: None) -> Iterator[Callable[[str], BrokerProcess]]:
    """Return the broker of a kind, which runs until the end of the session."""
    with ExitStack() as running:

        @cache
        def start(kind: str) -> BrokerProcess:
            return running.enter_context(BROKERS[kind](overrides=OVERRIDES))

        yield start


@pytest.fixture(scope="session", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, running_broker: Callable[[str], BrokerProcess]
) -> BrokerProcess:
    """A running broker. Each process of pytest-xdist has one of each kind, so that tests of one
    kind need not wait for each other.
    """
    return running_broker(request.param)


def grouped_brokers(what: str) -> list[ParameterSet]:
    """Return the kinds of brokers, for a module fixture that each process would set up again.

    The tests of a kind run in one process.

    Args:
        what: Name of the module's tests.
    """
    return [pytest.param(name, marks=pytest.mark.xdist_group(f"{name}-{what}")) for name in BROKERS]


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
