"""Helpers that read the state of a group and its topics with another Kafka client."""

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from group_descriptions import fetch_committed, owned_partitions
from polled_conditions import eventually

PATIENCE_S = 120


def wait_until(true, what="", patience_s=PATIENCE_S):
    """Wait until ``true()`` is truthy, and return its value."""
    return eventually(true, lambda: f"not within {patience_s} s: {what}", patience_s)


def filled_topic(kafka, partitions=4, count=100):
    """Create a topic with evenly spread records; return it and the rows to expect."""
    topic = kafka.topic(partitions)
    kafka.produce(topic, [{"value": b"%d" % n, "partition": n % partitions} for n in range(count)])
    return topic, sorted((n % partitions, n // partitions) for n in range(count))


def committed(kafka, group, topic, partitions):
    """Return a group's committed offset of each partition, or None."""
    found = fetch_committed(kafka.servers, group)
    return [found.get((topic, number)) for number in range(partitions)]


def ends(kafka, topic, isolation_level=IsolationLevel.READ_UNCOMMITTED):
    """Return the end offset of each partition; an empty list if the topic does not exist."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    # request all topics, because a request for a missing topic can create it
    found = admin.list_topics(timeout=PATIENCE_S).topics
    if topic not in found:
        return []
    wanted = {TopicPartition(topic, n): OffsetSpec.latest() for n in found[topic].partitions}
    asked = admin.list_offsets(wanted, isolation_level=isolation_level)
    return [
        asked[at].result(PATIENCE_S).offset
        for at in sorted(asked, key=lambda place: place.partition)
    ]


def member_partitions(kafka, group):
    """Return the partitions of each member of a group, by member id."""
    return owned_partitions(kafka.servers, group)


def produce(kafka, topic, partitions, count=1):
    """Produce the same number of records to each partition."""
    records = [{"value": b"x", "partition": n} for n in range(partitions) for _ in range(count)]
    kafka.produce(topic, records)
