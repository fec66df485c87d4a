"""Consumers of Apache Kafka without the consumer protocol in its rebalance protocols.

Its ApiVersions response offers the protocol: the feature is on, and the API is listed.
"""

from __future__ import annotations

import asyncio

import pytest

from group_descriptions import describe_group
from interop.peers.kafka import ApacheKafka
from partage.client.addresses import parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.consumer import MemberFailedError
from partage.client.consumer.group_protocol import has_consumer_protocol
from polled_conditions import PATIENCE_S

from .confluent_admin import create_topic, produce
from .consumer.consumer_adapters import FACES

pytestmark = pytest.mark.interop

VALUES = [b"%d" % n for n in range(20)]


@pytest.fixture(scope="module")
def servers():
    with ApacheKafka(overrides={"group.coordinator.rebalance.protocols": "classic"}) as kafka:
        create_topic(kafka.bootstrap, "t", 2)
        produce(kafka.bootstrap, "t", [{"value": value} for value in VALUES])
        yield kafka.bootstrap


def polled(consumer):
    found = []
    while len(found) < len(VALUES):
        records = consumer.poll(int(PATIENCE_S * 1000))
        assert records, f"{len(found)} of {len(VALUES)}"
        found += [record.value for record in records]
    return found


def test_broker_offers_the_protocol(servers):
    """Else the tests below would show nothing."""

    async def ask():
        async with Cluster(parse_bootstrap_servers(servers)) as cluster:
            return await has_consumer_protocol(cluster)

    assert asyncio.run(ask())


@pytest.mark.parametrize("face", FACES)
def test_auto_member_falls_back_to_classic(servers, face):
    options = {"group_id": face, "group_protocol": "auto", "auto_offset_reset": "earliest"}
    with FACES[face](servers, **options) as consumer:
        consumer.subscribe(["t"])
        assert sorted(polled(consumer)) == sorted(VALUES)
        consumer.commit()
        assert describe_group(servers, face).type == "Classic"
        committed = consumer.committed([("t", 0), ("t", 1)])
        assert sum(each.offset for each in committed.values()) == len(VALUES)


def test_member_without_auto_fails(servers):
    with FACES["sync"](servers, group_id="g", group_protocol="consumer") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(MemberFailedError, match="UNSUPPORTED_VERSION"):
            consumer.poll(int(PATIENCE_S * 1000))
