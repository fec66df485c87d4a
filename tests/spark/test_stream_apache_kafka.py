"""The streaming source on Apache Kafka: the same tests with the same results."""

import pytest

from interop.peers.kafka import ApacheKafka

from . import test_stream_consumer_protocol, test_stream_outages
from .conftest import Kafka
from .test_stream_consumer_protocol import TestConsumerProtocol
from .test_stream_mistakes import TestBadInput
from .test_stream_reader import TestGroups, TestOutsideAnyGroup, TestTriggers

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("apache-kafka-stream")]

__all__ = [
    "TestBadInput",
    "TestConsumerProtocol",
    "TestGroups",
    "TestOutsideAnyGroup",
    "TestTriggers",
]


#: As our broker is configured for these tests.
CONSUMER_GROUP_SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": test_stream_consumer_protocol.LONG_SESSION_MS,
}


@pytest.fixture(scope="module")
def kafka():
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with ApacheKafka(overrides=settings | CONSUMER_GROUP_SETTINGS) as broker:
        yield Kafka(broker.bootstrap)


class TestGroupsWithConsumerProtocol(test_stream_consumer_protocol.TestGroups):
    """All tests of groups run with both protocols."""


class RestartableKafka(ApacheKafka):
    """Apache Kafka with the interface of our broker process."""

    @property
    def bootstrap_servers(self):
        return self.bootstrap


class TestOutages(test_stream_outages.TestOutages):
    @pytest.fixture
    def broker(self):
        with RestartableKafka(overrides=test_stream_outages.SETTINGS) as broker:
            yield broker

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("outages_s", [[2, 25], pytest.param([90], marks=pytest.mark.soak)])
    def test_queries_survive_outages_at_random_moments(self, broker, there, run, outages_s):
        super().test_queries_survive_outages_at_random_moments(broker, there, run, outages_s)

    # The other tests are about our client, which is the same with every broker.
    test_restarted_query_waits_for_its_broker = None
    test_lookup_fails_after_api_timeout = None
    test_available_now_reads_everything_after_lost_session = None
    test_queries_survive_silent_network = None
