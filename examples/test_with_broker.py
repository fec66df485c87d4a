"""Test your own code with a broker in the test's process.

The pytest plugin is active as soon as Partage is installed; any Kafka client can produce the
records. Run this example:

    pip install partage confluent-kafka pytest
    pytest examples/test_with_broker.py
"""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer

from partage.errors import CommitFailedError
from partage.sync import Consumer
from partage.testing import ThreadedBroker


def count_flights(servers: str, group: str) -> Counter[bytes]:
    """Count the unread flights by airport, and commit. This is the code under test."""
    counts: Counter[bytes] = Counter()
    with Consumer(
        servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(["flights"])
        while not consumer.assignment() or any(consumer.lag().values()):
            counts.update(record.key or b"" for record in consumer.poll(timeout_ms=10))
        consumer.commit()
    return counts


def produce(servers: str, *airports: bytes) -> None:
    """Produce a flight for each airport."""
    producer = Producer({"bootstrap.servers": servers})
    for airport in airports:
        producer.produce("flights", b"", key=airport)
    assert producer.flush(30) == 0


def test_each_flight_is_counted_once(partage_broker: ThreadedBroker) -> None:
    """The broker is empty in each test, and its groups start without a delay."""
    servers = partage_broker.bootstrap_servers
    produce(servers, b"EWR", b"JFK", b"EWR")
    assert count_flights(servers, "tower") == {b"EWR": 2, b"JFK": 1}
    produce(servers, b"LGA")
    assert count_flights(servers, "tower") == {b"LGA": 1}


def test_failed_commit_is_reported(partage_broker: ThreadedBroker) -> None:
    """Inject a fault: the coordinator refuses the commit."""
    produce(partage_broker.bootstrap_servers, b"EWR")
    partage_broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID")
    with pytest.raises(CommitFailedError):
        count_flights(partage_broker.bootstrap_servers, "tower")


@pytest.mark.partage_broker({"auto.create.topics.enable": "false"})
def test_broker_settings_have_the_names_of_kafka(partage_broker: ThreadedBroker) -> None:
    """The marker changes settings of the broker for one test."""
    partage_broker.create_topic("flights", partitions=3)
    with Consumer(partage_broker.bootstrap_servers) as consumer:
        assert len(consumer.partitions_of("flights")) == 3
