"""Records and committed offsets of a `ThreadedBroker`, its topics, and its reset."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from partage import OffsetAndMetadata, Record
from partage.sync import Consumer
from partage.testing import ThreadedBroker, UnusedFaultError

pytestmark = pytest.mark.timeout(600)


def produce(broker, topic, *values, **settings):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def commit(broker, group, offsets):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    consumer = ConfluentConsumer(settings)
    partitions = [TopicPartition(*each, offset) for each, offset in offsets.items()]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def topic_names(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(timeout=30).topics) - {"__consumer_offsets"}


class TestRecords:
    def test_records_have_all_fields(self, partage_broker):
        producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers})
        producer.produce(
            "flights", b"UA1545", b"EWR", 0, timestamp=1_357_020_000_000, headers={"h": b"1"}
        )
        producer.produce("flights", None)
        assert producer.flush(30) == 0
        first, second = partage_broker.records("flights")
        assert first == Record(
            "flights", 0, 0, 1_357_020_000_000, 0, b"EWR", b"UA1545", (("h", b"1"),)
        )
        assert (second.offset, second.key, second.value) == (1, None, None)

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_records_are_in_order_of_partition_and_offset(self, partage_broker, codec):
        partage_broker.create_topic("flights", partitions=3)
        producer = Producer(
            {"bootstrap.servers": partage_broker.bootstrap_servers, "compression.type": codec}
        )
        for number in range(30):
            producer.produce("flights", b"%d" % number, partition=2 - number % 3)
        assert producer.flush(30) == 0
        found = [(each.partition, each.offset) for each in partage_broker.records("flights")]
        assert found == [(partition, offset) for partition in range(3) for offset in range(10)]

    def test_records_of_several_segments(self, partage_broker):
        partage_broker.create_topic("flights", configs={"segment.bytes": 1_048_576})
        for _ in range(3):
            produce(partage_broker, "flights", bytes(900_000))
        assert [each.offset for each in partage_broker.records("flights")] == [0, 1, 2]

    def test_records_of_empty_topic(self, partage_broker):
        partage_broker.create_topic("flights", partitions=2)
        assert partage_broker.records("flights") == []

    def test_records_of_unknown_topic_raise(self, partage_broker):
        partage_broker.create_topic("flights")
        with pytest.raises(LookupError, match="no topic 'flihgts'; did you mean 'flights'"):
            partage_broker.records("flihgts")

    def test_records_do_not_use_up_faults(self, partage_broker):
        produce(partage_broker, "flights", b"1")
        partage_broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", required=False)
        assert len(partage_broker.records("flights")) == 1
        assert partage_broker.faults.pending == 1


class TestCommitted:
    def test_committed_offsets_by_partition(self, partage_broker):
        partage_broker.create_topic("flights", partitions=2)
        assert partage_broker.committed("tower") == {}
        commit(partage_broker, "tower", {("flights", 1): 7, ("flights", 0): 3})
        assert partage_broker.committed("tower") == {("flights", 0): 3, ("flights", 1): 7}
        assert [str(each) for each in partage_broker.committed("tower")] == [
            "flights-0",
            "flights-1",
        ]
        assert partage_broker.committed("ground") == {}

    def test_committed_of_partage_consumer(self, partage_broker):
        produce(partage_broker, "flights", b"1", b"2")
        with Consumer(
            partage_broker.bootstrap_servers, group_id="tower", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["flights"])
            count = 0
            while count < 2:
                count += len(consumer.poll(timeout_ms=1000))
            consumer.commit({("flights", 0): OffsetAndMetadata(2, "note")})
            assert partage_broker.committed("tower") == {("flights", 0): 2}

    def test_committed_of_killed_coordinator_raises(self, partage_broker):
        with (
            partage_broker.faults.coordinator_down(),
            pytest.raises(RuntimeError, match="the coordinator is killed"),
        ):
            partage_broker.committed("tower")


class TestCreateTopic:
    def test_configs_accept_booleans_numbers_and_texts(self, partage_broker):
        configs = {"cleanup.policy": "compact", "retention.ms": 1000, "preallocate": False}
        partage_broker.create_topic("flights", configs=configs)
        topic = partage_broker.broker.log_manager.topic("flights")
        assert topic.topic.configs == {
            "cleanup.policy": "compact",
            "retention.ms": "1000",
            "preallocate": "false",
        }

    def test_invalid_config_raises(self, partage_broker):
        with pytest.raises(ValueError, match=r"topic 'flights' was not created: .*retention"):
            partage_broker.create_topic("flights", configs={"retention.m": 1})


class TestReset:
    def test_reset_removes_topics_groups_and_offsets(self, partage_broker):
        produce(partage_broker, "flights", b"1")
        partage_broker.create_topic("weather", partitions=3)
        commit(partage_broker, "tower", {("flights", 0): 1})
        address = partage_broker.bootstrap_servers
        partage_broker.reset()
        assert partage_broker.bootstrap_servers == address
        assert topic_names(partage_broker) == set()
        assert partage_broker.committed("tower") == {}
        groups = AdminClient({"bootstrap.servers": address}).list_consumer_groups()
        assert groups.result(30).valid == []

    def test_reset_is_durable_when_the_coordinator_reloads(self, partage_broker):
        partage_broker.create_topic("flights")
        commit(partage_broker, "tower", {("flights", 0): 1})
        partage_broker.reset()
        partage_broker.create_topic("flights")
        with partage_broker.faults.coordinator_down():
            pass
        partage_broker.run(partage_broker.broker.wait_loaded())
        assert partage_broker.committed("tower") == {}

    def test_reset_removes_a_group_with_members(self, partage_broker):
        produce(partage_broker, "flights", b"1")
        options = {"group_id": "tower", "auto_offset_reset": "earliest", "retry_backoff_ms": 10}
        with Consumer(partage_broker.bootstrap_servers, **options) as consumer:
            consumer.subscribe(["flights"])
            while not consumer.poll(timeout_ms=1000):
                pass
            (member,) = partage_broker.faults.members("tower")
            partage_broker.reset()
            assert partage_broker.faults.members("tower") == {}
            produce(partage_broker, "flights", b"2")
            while not (records := list(consumer.poll(timeout_ms=1000))):
                pass
            assert [each.value for each in records] == [b"2"]
            assert member not in partage_broker.faults.members("tower")

    def test_reset_answers_a_member_that_waits_in_a_join(self):
        """With an initial delay, so that the group cannot become empty by itself."""
        with ThreadedBroker({"group.initial.rebalance.delay.ms": 60_000}) as broker:
            broker.create_topic("flights")
            options = {"group_id": "tower", "retry_backoff_ms": 10}
            with Consumer(broker.bootstrap_servers, **options) as consumer:
                consumer.subscribe(["flights"])
                consumer.poll(timeout_ms=10)
                while not (first := broker.faults.members("tower")):
                    consumer.poll(timeout_ms=10)
                broker.reset()
                while not (second := broker.faults.members("tower")):
                    consumer.poll(timeout_ms=10)
                assert first.keys().isdisjoint(second)

    def test_reset_removes_altered_configs(self, partage_broker):
        admin = AdminClient({"bootstrap.servers": partage_broker.bootstrap_servers})
        partage_broker.create_topic("flights")
        for kind, name, config, value in (
            (ResourceType.BROKER, "1", "log.retention.ms", "1000"),
            (ResourceType.GROUP, "tower", "consumer.session.timeout.ms", "50000"),
            (ResourceType.TOPIC, "flights", "retention.ms", "1000"),
        ):
            entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(kind, name, incremental_configs=[entry])
            (altered,) = admin.incremental_alter_configs([resource]).values()
            altered.result(30)
        assert partage_broker.broker.dynamic_configs.group_ids() == ["tower"]
        partage_broker.reset()
        assert partage_broker.broker.dynamic_configs.group_ids() == []
        partage_broker.create_topic("flights")
        asked = ConfigResource(ResourceType.TOPIC, "flights")
        (described,) = admin.describe_configs([asked]).values()
        assert described.result(30)["retention.ms"].value == "604800000"

    def test_reset_keeps_idempotent_producers_usable(self, partage_broker):
        settings = {"enable.idempotence": True}
        producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers, **settings})
        for number in range(3):
            producer.produce("flights", b"%d" % number)
            assert producer.flush(30) == 0
        partage_broker.reset()
        partage_broker.create_topic("flights")
        failures = []
        for number in range(3):
            producer.produce(
                "flights", b"%d" % number, callback=lambda error, _: failures.append(error)
            )
            assert producer.flush(30) == 0
        produce(partage_broker, "flights", b"other", **settings)
        assert failures == [None] * 3
        assert [each.value for each in partage_broker.records("flights")] == [
            b"0",
            b"1",
            b"2",
            b"other",
        ]

    def test_reset_removes_faults(self, partage_broker):
        faults = partage_broker.faults
        partage_broker.create_topic("flights")
        faults.fail("OffsetCommit", "ILLEGAL_GENERATION", required=False)
        faults.kill_coordinator()
        held = faults.hold("ListOffsets")
        with Consumer(partage_broker.bootstrap_servers) as consumer:
            waiting = threading.Thread(
                target=consumer.end_offsets, args=([("flights", 0)],), daemon=True
            )
            waiting.start()
            held.wait()
            partage_broker.reset()  # sends the held response
            waiting.join(30)
            assert not waiting.is_alive()
        assert faults.pending == 0
        partage_broker.create_topic("flights")
        commit(partage_broker, "tower", {("flights", 0): 1})
        assert partage_broker.committed("tower") == {("flights", 0): 1}

    def test_reset_raises_if_a_required_fault_did_not_happen(self, partage_broker):
        partage_broker.create_topic("flights")
        partage_broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
        with pytest.raises(UnusedFaultError, match="OffsetCommit"):
            partage_broker.reset()
        assert topic_names(partage_broker) == set()
        partage_broker.reset()


def test_context_manager_raises_if_a_required_fault_did_not_happen():
    with pytest.raises(UnusedFaultError, match="JoinGroup"), ThreadedBroker() as broker:
        broker.faults.hold("JoinGroup")


def fail_with_unused_fault():
    with ThreadedBroker() as broker:
        broker.faults.hold("JoinGroup")
        raise ZeroDivisionError


def test_context_manager_does_not_hide_an_exception():
    with pytest.raises(ZeroDivisionError):
        fail_with_unused_fault()
