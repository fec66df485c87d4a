"""The streaming source on Apache Kafka: the same tests with the same results."""

import pytest

from interop.peers.kafka import ApacheKafka

from .conftest import Kafka
from .test_stream_mistakes import TestBadInput
from .test_stream_reader import TestGroups, TestOutsideAnyGroup, TestTriggers

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("apache-kafka-stream")]

__all__ = ["TestBadInput", "TestGroups", "TestOutsideAnyGroup", "TestTriggers"]


@pytest.fixture(scope="module")
def kafka():
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with ApacheKafka(overrides=settings) as broker:
        yield Kafka(broker.bootstrap)
