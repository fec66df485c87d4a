"""A topic is deleted and created again while no broker owns the groups that committed offsets for
it.
"""

from __future__ import annotations

import pytest

from partage.client.connection import Connection
from partage.testing import PartageWorld
from partage.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from partage.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsTopic
from world_connections import connect

from .world_group_client import WorldGroupClient, group_coordinated_by

PATIENCE_MS = 60_000


async def create(connection: Connection) -> None:
    """Create the topic with a partition on the first broker."""
    partition = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[partition], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS)
    response = await connection.send(CREATE_TOPICS, request, timeout_ms=PATIENCE_MS)
    assert response.topics[0].error_code == 0


async def delete(connection: Connection) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsTopic(name="t")], timeout_ms=PATIENCE_MS)
    response = await connection.send(DELETE_TOPICS, request, timeout_ms=PATIENCE_MS)
    assert response.responses[0].error_code == 0


@pytest.mark.partage_world(brokers=2)
#: Longer than a deletion waits for brokers that have not applied it.
@pytest.mark.partage_broker({"zookeeper.session.timeout.ms": 7_000})
async def test_topic_recreated_without_coordinator_has_no_offsets(
    partage_world: PartageWorld,
) -> None:
    world = partage_world
    world.allow("commit_ahead")  # the group commits without reading
    group = group_coordinated_by(world, "broker-2")
    connection = await connect("broker-1")
    await create(connection)
    async with WorldGroupClient(world, group) as before:
        assert await before.commit("t", 5) == 0
    world.kill("broker-2")
    await delete(connection)
    assert world.coordinator(group) is None
    await create(connection)
    async with WorldGroupClient(world, group) as after:
        assert await after.committed("t") == -1
        assert await after.commit("t", 1) == 0
    world.restart("broker-2")
    await world.until(world._all_brokers_have_started)
    async with WorldGroupClient(world, group) as back:
        assert await back.committed("t") == 1
    connection.close()
