"""Reads from followers (KIP-392) in a cluster of three Apache Kafka brokers in three racks."""

import json
import re
import uuid
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.peers.kafka import ApacheKafka
from interop.peers.paths import KAFKA_PLUGINS
from partage import RebalanceListener
from partage.client import TopicPartition
from partage.spark.offset_resolver import OffsetRange
from partage.spark.options import parse_options
from partage.spark.ranges import read_range
from partage.sync import Consumer
from polled_conditions import PATIENCE_S, eventually

from .confluent_admin import produce

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("apache-kafka-racks")]

RACKS = {1: "a", 2: "b", 3: "c"}
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group.consumer.assignors": "RackAssignor,uniform",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}
COUNT = 2000
#: A Fetch request of a client, and its response, in a request log.
FETCH = r'Completed request:(\{.*"clientId":"%s","requestApiKeyName":"FETCH".*\})\n'


@pytest.fixture(scope="module")
def brokers():
    """Yield the three brokers by id; the first one is also the controller."""
    with ExitStack() as stack:
        started = {}
        for node_id, rack in RACKS.items():
            broker = ApacheKafka(
                node_id=node_id,
                controller=started.get(1),
                overrides={"broker.rack": rack, **SETTINGS},
                log_levels={"kafka.request.logger": "debug"},
                plugins=KAFKA_PLUGINS,
            )
            started[node_id] = stack.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": started[1].bootstrap})
        eventually(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == len(RACKS))
        yield started


@pytest.fixture
def topic(brokers):
    """Create a topic that broker 1 leads, with replicas on all brokers; fill it.

    A follower learns the high watermark some time after the leader. Until then it returns no
    records, and clients read from the leader.
    """
    name = create(brokers, [[1, 2, 3]])
    fill(brokers, name, 0, COUNT)
    eventually(lambda: all(is_served_by_follower(brokers, name, rack) for rack in ("b", "c")))
    return name


def create(brokers, replicas):
    """Create a topic with these replicas for each partition; return its name."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    made = admin.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas)])
    made[name].result(PATIENCE_S)
    return name


def is_served_by_follower(brokers, topic, rack, partition=0):
    """Return True if a consumer reads all records without the leader."""
    client_id = f"probe-{uuid.uuid4().hex[:8]}"
    with consumer_in(brokers, rack, client_id) as consumer:
        consumer.assign([(topic, partition)])
        consumer.seek((topic, partition), 0)
        polled(consumer, COUNT)
    return not record_bytes(brokers[1], client_id)


def fill(brokers, topic, first, count, acks="all", partition=0):
    records = [{"value": b"%d" % n, "partition": partition} for n in range(first, first + count)]
    batches = {"batch.num.messages": 100}
    produce(brokers[1].bootstrap, topic, records, acks=acks, **batches)


def record_bytes(broker, client_id, partitions=None):
    """Return the sizes of records that a broker sent to a client, one for each partition.

    Responses without records do not count, nor do other partitions than those given.
    """
    return [
        partition["recordsSizeInBytes"]
        for fetch in fetches(broker, client_id)
        for topic in fetch["response"]["responses"]
        for partition in topic["partitions"]
        if partitions is None or partition["partitionIndex"] in partitions
        if partition["recordsSizeInBytes"]
    ]


def fetches(broker, client_id):
    """Return the Fetch requests of a client that a broker has logged, with their responses."""
    found = re.findall(FETCH % client_id, broker.log.read_text(errors="replace"))
    return [json.loads(each) for each in found]


def consumer_in(brokers, rack, client_id, **options):
    return Consumer(
        brokers[1].bootstrap,
        client_id=client_id,
        client_rack=rack,
        max_partition_fetch_bytes=4096,
        **{"auto_offset_reset": "none", **options},
    )


def polled(consumer, count):
    found = []
    while len(found) < count:
        records = consumer.poll(int(PATIENCE_S * 1000))
        assert records, f"{len(found)} of {count}"
        found += [int(record.value) for record in records]
    return found


def test_consumer_reads_from_follower_in_its_rack(brokers, topic):
    with consumer_in(brokers, "b", "consumer-b") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        assert polled(consumer, COUNT) == list(range(COUNT))
    eventually(lambda: len(record_bytes(brokers[2], "consumer-b")) > 1)
    eventually(lambda: fetches(brokers[1], "consumer-b"))  # the leader named the follower
    assert record_bytes(brokers[1], "consumer-b") == []
    assert record_bytes(brokers[3], "consumer-b") == []


@pytest.mark.parametrize("rack", [None, "a", "elsewhere"])
def test_consumer_in_other_rack_reads_from_leader(brokers, topic, rack):
    client_id = f"consumer-{rack}"
    with consumer_in(brokers, rack, client_id) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        assert polled(consumer, COUNT) == list(range(COUNT))
    eventually(lambda: len(record_bytes(brokers[1], client_id)) > 1)
    assert record_bytes(brokers[2], client_id) == []
    assert record_bytes(brokers[3], client_id) == []


def test_rack_aware_group_reads_only_from_followers(brokers):
    """The broker assigns to each member the partitions with a follower in its rack (KIP-848)."""
    topic = create(brokers, [[1, 2], [1, 3], [1, 3], [1, 2]])
    partitions = {"b": {0, 3}, "c": {1, 2}}
    for rack, near in partitions.items():
        for number in near:
            fill(brokers, topic, 0, COUNT, partition=number)
            eventually(
                lambda rack=rack, number=number: is_served_by_follower(brokers, topic, rack, number)
            )
    group = {
        "group_id": topic,
        "group_protocol": "consumer",
        "group_remote_assignor": "rack",
        "auto_offset_reset": "earliest",
    }
    with (
        consumer_in(brokers, "b", "member-b", **group) as b,
        consumer_in(brokers, "c", "member-c", **group) as c,
    ):
        members = {"b": b, "c": c}
        found = {rack: [] for rack in members}

        def poll_until(is_done):
            def poll():
                for rack, member in members.items():
                    found[rack] += [(each.partition, each.offset) for each in member.poll(20)]
                return is_done()

            eventually(poll)

        # The first member may get all partitions before the second one joins: it delivers nothing.
        for member in members.values():
            member.subscribe([topic], PauseAll(member))
        poll_until(lambda: {rack: paused(member) for rack, member in members.items()} == partitions)
        # On a busy machine a follower may have left the in-sync replicas meanwhile.
        for rack, near in partitions.items():
            for number in near:
                eventually(partial(is_served_by_follower, brokers, topic, rack, number))
        for member in members.values():
            member.resume(*member.assignment())
        poll_until(lambda: sum(map(len, found.values())) == 4 * COUNT)
    for rack, near in partitions.items():
        assert sorted(found[rack]) == [(p, n) for p in sorted(near) for n in range(COUNT)]
    eventually(lambda: len(record_bytes(brokers[2], "member-b")) > 1)
    eventually(lambda: len(record_bytes(brokers[3], "member-c")) > 1)
    # A member may have fetched from the leader what it owned before the other one joined.
    assert record_bytes(brokers[1], "member-b", partitions["b"]) == []
    assert record_bytes(brokers[1], "member-c", partitions["c"]) == []


class PauseAll(RebalanceListener):
    """A listener that pauses each partition when it is assigned."""

    def __init__(self, consumer):
        self._consumer = consumer

    def on_partitions_assigned(self, partitions):
        self._consumer.pause(*partitions)


def paused(consumer):
    """Return the numbers of the partitions that the listener has paused."""
    return {each.partition for each in consumer.paused()}


def test_executor_reads_from_follower_in_its_rack(brokers, topic):
    given = {
        "kafka.bootstrap.servers": brokers[1].bootstrap,
        "subscribe": topic,
        "kafka.client.id": "executor-c",
        "kafka.client.rack": "c",
        "kafka.max.partition.fetch.bytes": "4096",
    }
    whole = OffsetRange(TopicPartition(topic, 0), 0, COUNT)
    batches = list(read_range(whole, parse_options(given)))
    offsets = pa.Table.from_batches(batches)["offset"].to_pylist()
    assert offsets == list(range(COUNT))
    eventually(lambda: len(record_bytes(brokers[3], "executor-c")) > 1)
    assert record_bytes(brokers[1], "executor-c") == []
    assert record_bytes(brokers[2], "executor-c") == []


def test_killed_follower_is_replaced_without_loss_or_duplicates(brokers, topic):
    with consumer_in(brokers, "c", "survivor") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        found = polled(consumer, COUNT // 2)
        brokers[3].kill()
        try:
            fill(brokers, topic, COUNT, COUNT, acks="1")
            found += polled(consumer, 2 * COUNT - len(found))
        finally:
            brokers[3].start()
    assert found == list(range(2 * COUNT))
    eventually(lambda: record_bytes(brokers[1], "survivor"))
    assert record_bytes(brokers[3], "survivor")
