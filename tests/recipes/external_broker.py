"""A test broker, or an external one named by PARTAGE_TEST_BOOTSTRAP_SERVER, which is emptied."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from client.confluent_admin import create_topic, delete_topic
from polled_conditions import eventually

ELSEWHERE = os.environ.get("PARTAGE_TEST_BOOTSTRAP_SERVER")


@contextmanager
def empty_broker(request):
    if ELSEWHERE is None:
        yield request.getfixturevalue("partage_broker").bootstrap_servers
        return
    yield ELSEWHERE
    admin = AdminClient({"bootstrap.servers": ELSEWHERE})
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for deleted in admin.delete_topics(topics).values() if topics else ():
        deleted.result(30)
    groups = admin.list_consumer_groups(request_timeout=30).result(30).valid
    names = [group.group_id for group in groups]
    for deleted in admin.delete_consumer_groups(names).values() if names else ():
        with suppress(KafkaException):  # a killed member stays in its group until its session ends
            deleted.result(30)


def fresh_topic(servers, topic, partitions, **config):
    """Create an empty topic; the deletion of an earlier topic may not be complete yet."""
    give_up = time.monotonic() + 30
    while True:
        try:
            create_topic(servers, topic, partitions, **config)
            break
        except KafkaException:
            if ELSEWHERE is None or time.monotonic() > give_up:
                raise
        with suppress(KafkaException):
            delete_topic(servers, topic)
    if ELSEWHERE is not None:
        # Apache Kafka's brokers answer before they know the topic themselves.
        admin = AdminClient({"bootstrap.servers": servers})
        eventually(lambda: is_led(admin, topic, partitions))


def is_led(admin, topic, partitions):
    """True if the brokers show a leader for each partition of a topic."""
    shown = admin.list_topics(timeout=30).topics.get(topic)
    leaders = [] if shown is None else [each.leader for each in shown.partitions.values()]
    return len(leaders) == partitions and min(leaders) >= 0
