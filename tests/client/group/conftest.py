"""Consumers that share a topic, of either face, on a broker of the test's own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from client.consumer.faces import FACES

PARTITIONS = 6


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


@pytest.fixture
def topic(servers):
    """A topic of six partitions, each with ten records."""
    from client.peer import create_topic

    create_topic(servers, "t", PARTITIONS)
    fill(servers, "t", 10)
    return "t"


def fill(servers, topic, each, partitions=PARTITIONS):
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(partitions):
        for number in range(each):
            producer.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(30) == 0


@pytest.fixture(params=FACES)
def member_of(request, servers):
    """Makes members of one face, quick to notice; they are closed at the test's end."""
    with ExitStack() as stack:

        def make(group_id="g", **options):
            settled = {
                "group_id": group_id,
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 50,
                "session_timeout_ms": 3_000,
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 50,
                "fetch_max_wait_ms": 50,
                "metadata_max_age_ms": 200,
                **options,
            }
            return stack.enter_context(FACES[request.param](servers, **settled))

        yield make
