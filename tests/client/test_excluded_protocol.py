"""Consumers of a broker without the consumer protocol in its rebalance protocols.

Its ApiVersions response offers the protocol: the feature is on, and the API is listed.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from broker.raw_client import RawClient
from console.cli import PartageCli
from group_descriptions import describe_group
from interop.peers.kafka import ApacheKafka
from partage.client.addresses import parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.consumer import MemberFailedError
from partage.client.consumer.group_protocol import has_consumer_protocol
from partage.model.errors import ErrorCode
from partage.testing import ThreadedBroker
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from polled_conditions import PATIENCE_S

from .confluent_admin import create_topic, produce
from .consumer.consumer_adapters import FACES

VALUES = [b"%d" % n for n in range(20)]


OVERRIDES = {"group.coordinator.rebalance.protocols": "classic"}


@pytest.fixture(
    scope="module", params=["partage", pytest.param("apache", marks=pytest.mark.interop)]
)
def servers(request):
    with ExitStack() as stack:
        if request.param == "partage":
            found = stack.enter_context(ThreadedBroker(OVERRIDES)).bootstrap_servers
        else:
            found = stack.enter_context(ApacheKafka(overrides=OVERRIDES)).bootstrap
        create_topic(found, "t", 2)
        produce(found, "t", [{"value": value} for value in VALUES])
        yield found


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


def test_requests_of_the_protocol_get_unsupported_version(servers):
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    description = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    with RawClient(servers) as raw:
        for version in (0, 1):
            refused = raw.request(CONSUMER_GROUP_HEARTBEAT, heartbeat, version)
            assert refused == ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, member_epoch=0, heartbeat_interval_ms=0
            )
            described = raw.request(CONSUMER_GROUP_DESCRIBE, description, version)
            assert described == ConsumerGroupDescribeResponse(
                groups=[
                    DescribedConsumerGroup(
                        error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id
                    )
                    for group_id in ("g", "h")
                ]
            )


def test_commands_find_no_group_with_the_protocol(servers):
    partage = PartageCli(servers)
    assert "no such group" in partage.fails("groups", "describe", "missing")
    reset = ("groups", "reset-offsets", "fresh", "--topic", "t", "--to-earliest", "--execute")
    partage(*reset)
    described = partage("groups", "describe", "fresh", "--json").json
    assert [(each["group"], each["state"]) for each in described["groups"]] == [("fresh", "Empty")]
