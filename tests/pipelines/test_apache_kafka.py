"""Archive and join on Apache Kafka: the same tests with the same results."""

import pytest

from interop.peers.kafka import ApacheKafka
from spark.conftest import Kafka

from . import test_archive, test_join

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("spark")]

TestArchive = test_archive.TestInOneSession
TestJoin = test_join.TestSmall
run = test_archive.run


@pytest.fixture(scope="module")
def kafka():
    with ApacheKafka() as broker:
        yield Kafka(broker.bootstrap)
