"""Streaming queries with the consumer group protocol (KIP-848): the broker assigns partitions."""

import pytest

from broker.config_requests import GROUP, alter
from broker.raw_client import RawClient
from group_descriptions import describe_group
from partage.client.group.errors import MemberFailedError
from partage.spark.stream.listener import CommitListener
from partage.spark.stream.offset import decode_offset
from partage.testing import ThreadedBroker
from partage.wire.apis.incremental_alter_configs import SET

from . import test_stream_reader
from .conftest import Kafka
from .group_state import committed, filled_topic, member_partitions, produce, wait_until
from .reader_driver import group_query_options

#: The broker decides about these; the tests of the classic protocol shorten them.
SESSION_TIMEOUT = "kafka__session__timeout__ms"
BROKER_DECIDES = (SESSION_TIMEOUT, "kafka__heartbeat__interval__ms")
#: The sessions of tests that wait for no expiry: members of a busy machine keep them.
LONG_SESSION_MS = "30000"
SHORT_SESSION_MS = "6000"


@pytest.fixture(scope="module")
def broker():
    with ThreadedBroker({"group.consumer.session.timeout.ms": LONG_SESSION_MS}) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka(broker):
    return Kafka(broker.bootstrap_servers)


def shorten_sessions(kafka, group):
    """Let the sessions of a group's members expire after `SHORT_SESSION_MS`."""
    change = (SET, "consumer.session.timeout.ms", SHORT_SESSION_MS)
    with RawClient(kafka.servers, timeout_s=30) as raw:
        assert alter(raw, change, name=group, kind=GROUP) == 0


def source_of(one):
    """Return the source of partitions of a running query."""
    return one.reader._runtime.source._partition_source


def shares(kafka, group):
    """Return the sorted sizes of the members' shares, as the coordinator knows them."""
    return sorted(map(len, member_partitions(kafka, group).values()))


async def close_connections(listener):
    for group in listener._groups.values():
        group._coordinator.disconnect()
        group._cluster.close()


class ConsumerProtocolQueries:
    @pytest.fixture
    def query(self, query, kafka):
        """Create query drivers with the consumer protocol, unless the test chooses another one.

        A test that shortens the session of a query gets short sessions in its group.
        """

        def make(servers=None, **options):
            if SESSION_TIMEOUT in options:
                shorten_sessions(kafka, options["kafka__group__id"])
            accepted = {name: text for name, text in options.items() if name not in BROKER_DECIDES}
            if "kafka__group__id" in accepted:
                accepted = {"kafka__group__protocol": "consumer"} | accepted
            return query(servers, **accepted)

        return make


class TestConsumerProtocol(ConsumerProtocolQueries):
    def test_partitions_are_revoked_between_batches_only(self, query, kafka):
        topic, truth = filled_topic(kafka, 4, 40)
        one, two = query(**group_query_options(topic)), query(**group_query_options(topic))
        assert one.batch() == truth
        wait_until(lambda: two.batch() == [] and len(source_of(one).pending_revocation) == 2)
        assert two.plan() is None  # the first query still has its partitions in a batch
        assert shares(kafka, topic) == [0, 4]
        assert committed(kafka, topic, topic, 4) == [0] * 4
        one.plan()  # finishes the batch
        wait_until(lambda: (two.plan(), shares(kafka, topic))[1] == [2, 2])
        assert committed(kafka, topic, topic, 4) == [10] * 4
        produce(kafka, topic, 4)
        rows = []
        wait_until(lambda: len(rows.extend(one.batch() + two.batch()) or rows) >= 4)
        assert sorted(rows) == [(p, 10) for p in range(4)]

    @pytest.mark.parametrize("protocol", ["consumer", "auto"])
    def test_remote_assignor_is_used(self, query, kafka, protocol):
        topic, truth = filled_topic(kafka, 4, 8)
        options = group_query_options(topic, kafka__group__protocol=protocol)
        one = query(kafka__group__remote__assignor="range", **options)
        assert one.all() == truth
        group = describe_group(kafka.servers, topic)
        assert (group.type, group.protocol) == ("Consumer", "range")

    def test_unknown_remote_assignor_ends_the_query(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 1)
        one = query(**group_query_options(topic, kafka__group__remote__assignor="none"))
        with pytest.raises(MemberFailedError, match="UNSUPPORTED_ASSIGNOR"):
            one.all()

    def test_instance_id_in_use_is_refused(self, query, kafka):
        """As with Kafka's consumer; with the classic protocol, the new member fences the old one.

        A killed member uses it until its session ends.
        """
        topic, truth = filled_topic(kafka, 1, 1)
        options = group_query_options(topic, kafka__group__instance__id="i")
        one, two = query(**options), query(**options)
        assert one.batch() == truth
        with pytest.raises(MemberFailedError, match="UNRELEASED_INSTANCE_ID"):
            two.all()

    def test_restarted_query_changes_the_protocol(self, query, kafka):
        """The group is converted while it has a classic member; the checkpoint stays valid."""
        topic, truth = filled_topic(kafka, 2, 10)
        classic = group_query_options(topic, kafka__group__protocol="classic")
        one = query(**classic)
        assert one.all() == truth
        two = query(**group_query_options(topic))
        wait_until(lambda: (one.plan(), two.plan(), shares(kafka, topic))[2] == [1, 1])
        one.stop()
        produce(kafka, topic, 2)
        again = query(checkpoint=one.checkpoint, **group_query_options(topic))
        rows = []
        wait_until(lambda: len(rows.extend(again.batch() + two.batch()) or rows) >= 2)
        assert sorted(rows) == [(0, 5), (1, 5)]
        assert {m.protocol for m in describe_group(kafka.servers, topic).members} == {"Consumer"}

    def test_listener_commits_with_the_epoch_of_the_batch(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic))
        assert one.batch() == truth
        listener = CommitListener({})
        listener._schedule_commit("query", decode_offset(one.last_offset))
        wait_until(lambda: committed(kafka, topic, topic, 2) == [5, 5])
        wait_until(lambda: not listener._commits_in_flight)
        listener._loop.call(close_connections(listener))
        listener._loop.stop()


def test_refused_query_falls_back_to_classic(query, kafka, broker):
    topic, truth = filled_topic(kafka, 2, 4)
    broker.faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
    one = query(**group_query_options(topic, kafka__group__protocol="auto"))
    assert one.batch() == truth
    assert describe_group(kafka.servers, topic).type == "Classic"
    wait_until(lambda: (one.plan(), committed(kafka, topic, topic, 2))[1] == [2, 2])


@pytest.mark.slow
class TestGroups(ConsumerProtocolQueries, test_stream_reader.TestGroups):
    """The tests of groups with the classic protocol, with the consumer protocol."""

    # The tests above replace these.
    test_configured_assignor_is_used = None
    test_partitions_are_revoked_between_batches_only = None
