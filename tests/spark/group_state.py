"""What tests of streaming queries see of a group and its topics, through another client."""

import time

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

PATIENCE_S = 120


def wait_until(true, what="", patience_s=PATIENCE_S):
    """Wait until something is so; what it was in the end."""
    deadline = time.monotonic() + patience_s
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.05)
    return found


def filled_topic(kafka, partitions=4, count=100):
    """A topic with records spread evenly, and what a query should get of it."""
    topic = kafka.topic(partitions)
    kafka.produce(topic, [{"value": b"%d" % n, "partition": n % partitions} for n in range(count)])
    return topic, sorted((n % partitions, n // partitions) for n in range(count))


def committed(kafka, group, topic, partitions):
    """What a group has committed, as another client sees it; None where nothing is."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    wanted = [TopicPartition(topic, n) for n in range(partitions)]
    asked = [ConsumerGroupTopicPartitions(group, wanted)]
    found = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    return [None if at.offset < 0 else at.offset for at in sorted(found, key=lambda p: p.partition)]


def ends(kafka, topic):
    """Where each partition of a topic ends, as another client sees it; empty without the topic."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    found = admin.list_topics(timeout=30).topics  # of all: nothing is created by asking
    if topic not in found:
        return []
    wanted = {TopicPartition(topic, n): OffsetSpec.latest() for n in found[topic].partitions}
    asked = admin.list_offsets(wanted)
    return [asked[at].result(30).offset for at in sorted(asked, key=lambda place: place.partition)]


def member_partitions(kafka, group):
    """The group as another client sees it: its members' partitions, by member id."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    found = admin.describe_consumer_groups([group])[group].result(30)
    return {
        member.member_id: sorted(p.partition for p in member.assignment.topic_partitions)
        for member in found.members
    }


def produce(kafka, topic, partitions, count=1):
    """The same number of new records in each partition."""
    records = [{"value": b"x", "partition": n} for n in range(partitions) for _ in range(count)]
    kafka.produce(topic, records)
