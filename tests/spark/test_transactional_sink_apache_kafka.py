"""The transactional sink on Apache Kafka: the same tests with the same results."""

from collections import Counter

import pytest

from interop.peers.kafka import ApacheKafka

from .test_transactional_sink import (
    Query,
    TestBatches,
    TestDeaths,
    TestErrors,
    TestStableReads,
    TestZombies,
    committed,
    create_topic,
    query,
    topic,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("apache-kafka-sink"),
]

__all__ = [
    "TestBatches",
    "TestDeaths",
    "TestErrors",
    "TestStableReads",
    "TestZombies",
    "query",
    "topic",
]


@pytest.fixture(scope="module")
def servers():
    with ApacheKafka() as broker:
        yield broker.bootstrap


def test_batch_survives_restart_of_apache_kafka():
    with ApacheKafka() as broker:
        copy = Query(broker.bootstrap, create_topic(broker.bootstrap, "t"))
        results = copy.write_batch(0, ["a"], ["b"])
        broker.kill()
        broker.start()
        copy.commit(0, results)
        copy.commit(0, copy.write_batch(0, ["a"], ["b"], run="run2"), run="run2")
        assert committed(broker.bootstrap, "t") == Counter("ab")
