"""Group members of both kinds of consumers that share a topic, on a separate broker."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from client.consumer.consumer_adapters import FACES

PARTITIONS = 6

#: Another broker to test against, such as Apache Kafka; see ``interop/test_partage_members.py``.
_ELSEWHERE = os.environ.get("PARTAGE_TEST_BOOTSTRAP_SERVER")
_numbers = itertools.count(1)


def pytest_collection_modifyitems(config, items):
    """Deselect tests that control the broker process if an external broker is used."""
    if _ELSEWHERE is None:
        return
    own = [item for item in items if "partage_broker" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]


@pytest.fixture
def servers(request):
    """A broker without topics; group names are never reused."""
    if _ELSEWHERE is None:
        yield request.getfixturevalue("partage_broker").bootstrap_servers
        return
    yield _ELSEWHERE
    admin = AdminClient({"bootstrap.servers": _ELSEWHERE})
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for deleted in admin.delete_topics(topics).values() if topics else ():
        deleted.result(30)


@pytest.fixture
def topic(servers):
    """A topic of six partitions, each with ten records."""
    from client.confluent_admin import create_topic

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
    """Create members of one kind with short timeouts; close them after the test."""
    with ExitStack() as stack:
        group = f"g{next(_numbers)}"

        def make(group_id=group, **options):
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
