"""Groups with the consumer protocol (KIP-848) whose coordinator is killed in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from partage.testing import PartageWorld
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    DescribedConsumerGroup,
)
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)

from .world_group_client import WorldGroupClient


@pytest.mark.partage_world(brokers=2)
@pytest.mark.partage_broker({"group.consumer.assignment.interval.ms": 0})
async def test_reconciliation_continues_at_the_next_coordinator(
    partage_world: PartageWorld,
) -> None:
    """A member holds back a revocation while the coordinator is killed."""
    world = partage_world
    await world.create_topic("t", partitions=2)
    async with WorldGroupClient(world, "g") as client:
        joining = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["t"]}
        first = await heartbeat(client, "A", 0, topic_partitions=[], **joining)
        (every,) = assigned(first)
        assert every.partitions == [0, 1]
        second = await heartbeat(client, "B", 0, topic_partitions=[], **joining)
        assert assigned(second) == []
        (kept,) = assigned(await heartbeat(client, "A", first.member_epoch))
        assert len(kept.partitions) == 1
        before = await describe(client)
        assert (before.group_state, before.group_epoch) == ("Reconciling", second.member_epoch)

        former = await client.find()
        world.kill(former)
        assert await describe(client) == before
        assert await client.find() != former
        held = await heartbeat(client, "A", first.member_epoch, topic_partitions=[every])
        assert held.member_epoch == first.member_epoch
        assert (await heartbeat(client, "B", second.member_epoch)).assignment is None
        assert await describe(client) == before

        confirmed = await heartbeat(client, "A", first.member_epoch, topic_partitions=[kept])
        assert confirmed.member_epoch == second.member_epoch
        (gained,) = assigned(await heartbeat(client, "B", second.member_epoch))
        assert sorted([*kept.partitions, *gained.partitions]) == every.partitions
        after = await describe(client)
        assert (after.group_state, after.group_epoch) == ("Stable", before.group_epoch)


async def heartbeat(
    client: WorldGroupClient, member_id: str, epoch: int, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    """Send a heartbeat; return the response, which has no error."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=client.group, member_id=member_id, member_epoch=epoch, **fields
    )
    response: ConsumerGroupHeartbeatResponse = await client.request(
        CONSUMER_GROUP_HEARTBEAT, request
    )
    assert response.error_code == 0, response
    return response


def assigned(response: ConsumerGroupHeartbeatResponse) -> list[ConsumerGroupTopicPartitions]:
    """Return the partitions of a response that has an assignment."""
    assert response.assignment is not None
    return response.assignment.topic_partitions


async def describe(client: WorldGroupClient) -> DescribedConsumerGroup:
    """Return the group as its coordinator describes it."""
    request = ConsumerGroupDescribeRequest(group_ids=[client.group])
    response = await client.request(CONSUMER_GROUP_DESCRIBE, request)
    (group,) = response.groups
    assert isinstance(group, DescribedConsumerGroup)
    return group
