"""Injected faults, with Partage's and with confluent-kafka's consumer."""

from __future__ import annotations

import time
import traceback

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from partage.client.consumer import RebalanceListener
from partage.model.errors import ErrorCode
from partage.sync import Consumer
from partage.testing import ThreadedBroker

pytestmark = pytest.mark.timeout(600)
QUICK = {"heartbeat_interval_ms": 20, "retry_backoff_ms": 5, "retry_backoff_max_ms": 20}


class RecordingListener(RebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, partitions):
        self.calls.append("assigned")

    def on_partitions_revoked(self, partitions):
        self.calls.append("revoked")

    def on_partitions_lost(self, partitions):
        self.calls.append("lost")


@pytest.fixture
def servers(partage_broker):
    servers = partage_broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    for number in range(10):
        producer.produce("t", b"%d" % number)
    assert producer.flush(10) == 0
    return servers


@pytest.fixture
def faults(partage_broker):
    return partage_broker.faults


@pytest.fixture
def listener():
    return RecordingListener()


@pytest.fixture
def consumer(servers, listener):
    options = {"group_id": "g", "client_id": "ours", "auto_offset_reset": "earliest"}
    with Consumer(servers, **options, **QUICK) as consumer:
        consumer.subscribe(["t"], listener)
        assert read(consumer, 10) == 10
        yield consumer


def read(consumer, count, within_s=30.0):
    """Poll until ``count`` records have arrived; return their number."""
    received, give_up = 0, time.monotonic() + within_s
    while received < count and time.monotonic() < give_up:
        received += len(list(consumer.poll(20)))
    return received


def until(done, *consumers, within_s=30.0):
    give_up = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < give_up
        for consumer in consumers:
            consumer.poll(10)


def produce(servers, count=1):
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(count):
        producer.produce("t", b"more")
    return producer.flush(10)


def commit_eventually(confluent_consumer, within_s=30.0):
    """Commit; librdkafka refuses locally until it has found the coordinator again."""
    give_up = time.monotonic() + within_s
    while True:
        try:
            return confluent_consumer.commit(asynchronous=False)
        except KafkaException as failed:
            waits = failed.args[0].code() == KafkaError._WAIT_COORD
            if not waits or time.monotonic() > give_up:
                raise
        confluent_consumer.poll(0.05)


def confluent(servers, **settings):
    known = {"bootstrap.servers": servers, "group.id": "c", "client.id": "theirs"}
    known |= {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 50}
    return ConfluentConsumer(known | settings)


class TestExpiry:
    def test_expire_own_consumer_rejoins(self, faults, consumer, listener):
        (member_id,) = faults.members("g")
        assert faults.expire("g", client_id="ours") == member_id
        until(lambda: listener.calls == ["assigned", "lost", "assigned"], consumer)
        assert member_id not in faults.members("g")

    def test_expire_confluent_consumer_rejoins(self, faults, servers):
        calls = []
        confluent_consumer = confluent(servers)
        confluent_consumer.subscribe(
            ["t"],
            on_assign=lambda *_: calls.append("assigned"),
            on_revoke=lambda *_: calls.append("revoked"),
            on_lost=lambda *_: calls.append("lost"),
        )
        while not calls:
            confluent_consumer.poll(0.01)
        faults.expire("c")
        while calls != ["assigned", "lost", "assigned"]:
            confluent_consumer.poll(0.01)
        confluent_consumer.close()

    def test_expire_unknown_member_raises(self, faults, consumer):
        with pytest.raises(LookupError, match=r"no member with client_id='other' after 0 s$"):
            faults.expire("g", client_id="other", within_s=0)

    def test_expire_empty_group_raises(self, faults):
        with pytest.raises(LookupError, match=r"^group 'empty' has no member after 0 s$"):
            faults.expire("empty", within_s=0)

    def test_expire_ambiguous_member_raises(self, faults, consumer, servers):
        with Consumer(servers, group_id="g", client_id="second", **QUICK) as second:
            second.subscribe(["t"])
            until(lambda: len(faults.members("g")) == 2, consumer, second)
            with pytest.raises(LookupError, match="several members"):
                faults.expire("g")
            faults.expire("g", client_id="second")


class TestHolding:
    def test_hold_response_until_released(self, faults, consumer):
        with faults.hold("OffsetCommit", client_id="ours") as held:
            committed = consumer.commit_async()
            held.wait()
            assert not committed.done()
        committed.result(10)

    def test_hold_without_request_times_out(self, faults):
        held = faults.hold("JoinGroup", required=False)
        with pytest.raises(TimeoutError, match="no matching request") as caught:
            held.wait(timeout_s=0.01)
        assert "no running event loop" not in "".join(traceback.format_exception(caught.value))

    def test_hold_may_end_after_the_broker(self):
        with ThreadedBroker() as broker, broker.faults.hold("JoinGroup", required=False):
            broker.stop()

    def test_hold_released_early_holds_nothing(self, faults, servers):
        faults.hold("ListOffsets", required=False).release()
        assert faults.pending == 0
        with Consumer(servers) as consumer:
            assert list(consumer.end_offsets([("t", 0)]).values()) == [10]


class TestFailing:
    def test_fail_commit(self, faults, servers):
        confluent_consumer = confluent(servers)
        faults.fail("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", client_id="theirs")
        confluent_consumer.subscribe(["t"])
        while confluent_consumer.poll(0.05) is None:
            pass
        with pytest.raises(KafkaException, match="Topic authorization failed"):
            confluent_consumer.commit(asynchronous=False)
        assert confluent_consumer.commit(asynchronous=False)[0].offset == 1
        confluent_consumer.close()

    def test_fail_produce_has_no_effect_and_is_retried(self, faults, servers):
        faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        assert produce(servers) == 0
        with Consumer(servers) as consumer:
            assert list(consumer.end_offsets([("t", 0)]).values()) == [11]

    @pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata", "FindCoordinator"])
    def test_fail_with_retriable_error_is_retried(self, faults, servers, api):
        error = {
            "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
            "Metadata": "LEADER_NOT_AVAILABLE",
        }.get(api, "NOT_LEADER_OR_FOLLOWER")
        faults.fail(api, error, times=2)
        assert faults.pending == 2
        options = {"group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer(servers, **options, **QUICK) as consumer:
            consumer.subscribe(["t"])
            assert read(consumer, 10) == 10
        assert faults.pending == 0

    def test_fail_applies_to_given_client_only(self, faults, consumer):
        faults.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", client_id="another client")
        consumer.commit()
        assert faults.pending == 1
        faults.clear()
        assert faults.pending == 0

    def test_fail_unknown_api_raises(self, faults):
        with pytest.raises(
            ValueError, match="'JoinGrup' is not an API name; did you mean 'JoinGroup'"
        ):
            faults.fail("JoinGrup", "REBALANCE_IN_PROGRESS")

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (
                "ILEGAL_GENERATION",
                "'ILEGAL_GENERATION' is not an error code; did you mean 'ILLEGAL_GENERATION'",
            ),
            (
                "illegal_generation",
                "'illegal_generation' is not an error code; did you mean 'ILLEGAL_GENERATION'",
            ),
            (31_000, "31000 is not a valid ErrorCode"),
            ("NONE", "NONE is not an error"),
        ],
    )
    def test_fail_with_unknown_error_raises(self, faults, error, message):
        with pytest.raises(ValueError, match=message):
            faults.fail("OffsetCommit", error)

    def test_fail_without_requests_raises(self, faults):
        with pytest.raises(ValueError, match="times=0: at least one request must fail"):
            faults.fail("OffsetCommit", "ILLEGAL_GENERATION", times=0)


def test_disconnect_consumer_reconnects(faults, consumer, servers, listener):
    assert faults.disconnect(client_id="nobody") == 0
    assert faults.disconnect(client_id="ours") > 0
    assert produce(servers, 3) == 0
    assert read(consumer, 3) == 3
    assert listener.calls == ["assigned"]


class TestTheCoordinator:
    def test_revived_coordinator_has_its_groups(self, faults, consumer, servers, listener):
        consumer.commit()
        (member_id,) = faults.members("g")
        with faults.coordinator_down():
            assert faults.members("g") == {}
            assert produce(servers, 3) == 0
            assert read(consumer, 3) == 3  # it continues to read its partitions
        consumer.commit()
        assert set(faults.members("g")) == {member_id}
        assert listener.calls == ["assigned"]
        assert [each.offset for each in consumer.committed([("t", 0)]).values()] == [13]

    def test_confluent_consumer_survives_dead_coordinator(self, faults, servers):
        confluent_consumer = confluent(servers)
        confluent_consumer.subscribe(["t"])
        while confluent_consumer.poll(0.05) is None:
            pass
        with faults.coordinator_down():
            confluent_consumer.poll(0.1)
            confluent_consumer.commit()  # waits for the coordinator
        assert commit_eventually(confluent_consumer)[0].offset >= 1
        confluent_consumer.close()

    def test_kill_and_revive_twice_raise(self, faults):
        with pytest.raises(RuntimeError, match="is not killed"):
            faults.revive_coordinator()
        faults.kill_coordinator()
        with pytest.raises(RuntimeError, match="is already killed"):
            faults.kill_coordinator()
        faults.clear()
        faults.revive_coordinator()


class TestMetadata:
    def test_stale_metadata_hides_new_partitions(self, faults, servers):
        admin = AdminClient({"bootstrap.servers": servers})
        with faults.stale_metadata():
            for created in admin.create_topics([NewTopic("new", 1)]).values():
                created.result(10)
            assert set(admin.list_topics(timeout=30).topics) == {"t", "__consumer_offsets"}
        assert "new" in admin.list_topics(timeout=30).topics

    def test_metadata_unavailable_until_end(self, faults, servers):
        admin = AdminClient({"bootstrap.servers": servers})
        with faults.metadata_unavailable():
            topic = admin.list_topics(timeout=30).topics["t"]
            assert topic.error.str() == "Broker: Leader not available"
        assert admin.list_topics(timeout=30).topics["t"].error is None
