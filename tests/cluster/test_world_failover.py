"""A broker is killed or suspended in virtual time: its groups continue at another broker.

`cluster.test_failover` has the cases that need real processes or a real ZooKeeper.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from broker.group_requests import commit_request
from partage import Consumer
from partage.client.connection import Connection
from partage.model.errors import ErrorCode
from partage.testing import PartageWorld
from partage.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from partage.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsTopic,
)
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from world_connections import connect

from .group_client import error_of
from .world_group_client import WorldGroupClient

pytestmark = pytest.mark.partage_world(brokers=3)

NOT_COORDINATOR = 16
LEADER_NOT_AVAILABLE = 5
#: Longer than the session of a broker, so that another one takes over its shards.
SUSPENDED_MS = 30_000


async def form_group(client: WorldGroupClient, world: PartageWorld) -> JoinGroupResponse:
    """Form a group of one member, with a committed offset."""
    world.allow("commit_ahead")  # the member commits without reading
    await world.create_topic("t")
    joined = await client.join_and_sync()
    assert await client.commit("t", 42, joined) == 0
    return joined


async def test_killed_coordinator_group_continues(partage_world: PartageWorld) -> None:
    """Same generation, same member, same offsets."""
    world = partage_world
    async with WorldGroupClient(world, "g") as group:
        joined = await form_group(group, world)
        former = await group.find()
        world.kill(former)
        assert await group.heartbeat(joined) == 0
        assert await group.committed("t") == 42
        assert await group.commit("t", 43, joined) == 0
        assert (await group.sync(joined, None)).assignment == b"all"
        assert await group.find() != former


async def test_groups_of_a_killed_coordinator_stay_listed(partage_world: PartageWorld) -> None:
    """No list of all brokers is complete without them: a broker returns an error until then."""
    world = partage_world
    async with WorldGroupClient(world, "g") as group:
        await form_group(group, world)
        killed = await group.find()
        world.kill(killed)
    others = [await connect(broker) for broker in world.brokers if broker != killed]
    errors = set()
    listed: list[str] = []
    while not listed:
        views = await asyncio.gather(
            *(each.send(METADATA, MetadataRequest(topics=[])) for each in others)
        )
        lists = await asyncio.gather(
            *(each.send(LIST_GROUPS, ListGroupsRequest()) for each in others)
        )
        if all(len(view.brokers) == 2 for view in views):  # no broker names the killed one
            errors |= {answer.error_code for answer in lists}
            if not any(answer.error_code for answer in lists):
                listed = [each.group_id for answer in lists for each in answer.groups]
                assert listed == ["g"]
    assert errors == {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    for connection in others:
        connection.close()


async def test_suspended_coordinator_writes_nothing(partage_world: PartageWorld) -> None:
    """It continues with commits in its sockets, although it no longer owns the shards."""
    world = partage_world
    async with WorldGroupClient(world, "g") as group, WorldGroupClient(world, "g") as other:
        joined = await form_group(group, world)
        former = await group.find()
        stale = [await connect(former) for _ in range(5)]
        world.pause(former, SUSPENDED_MS / 1000)
        late = [
            asyncio.ensure_future(
                connection.send(
                    OFFSET_COMMIT,
                    commit_request("g", "t", {0: number}, joined),
                    timeout_ms=2 * SUSPENDED_MS,
                )
            )
            for number, connection in enumerate(stale)
        ]
        assert await other.heartbeat(joined) == 0
        assert await other.committed("t") == 42
        assert await other.commit("t", 50, joined) == 0
        assert not any(each.done() for each in late)
        assert [error_of(await each) for each in late] == [NOT_COORDINATOR] * 5
        for connection in stale:
            connection.close()
        assert await other.committed("t") == 50
        assert await other.heartbeat(joined) == 0


async def test_partitions_of_dead_broker_stay_listed(partage_world: PartageWorld) -> None:
    world = partage_world
    await world.create_topic("partly", partitions=3)
    leaders = {n: world.leader("partly", n) for n in range(3)}
    assert set(leaders.values()) == set(world.brokers)
    world.kill("broker-2")
    connection = await connect("broker-1")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="partly")])

    async def listed() -> dict[int, tuple[int, int]]:
        (topic,) = (await connection.send(METADATA, request)).topics
        return {p.partition_index: (p.leader_id, p.error_code) for p in topic.partitions}

    ids = {n: world.brokers.index(leader) + 1 for n, leader in leaders.items()}
    expected = {n: (-1, LEADER_NOT_AVAILABLE) if i == 2 else (i, 0) for n, i in ids.items()}

    async def is_listed() -> bool:
        return await listed() == expected

    await world.until(is_listed)
    (topic,) = (await connection.send(METADATA, request)).topics
    (lost,) = [each for each in topic.partitions if each.leader_id == -1]
    assert (lost.replica_nodes, lost.isr_nodes) == ([2], [])
    connection.close()


async def test_cut_off_broker_does_not_refuse_by_old_topics(partage_world: PartageWorld) -> None:
    """It knows a topic that was deleted, and lacks one that was created."""
    world = partage_world
    await world.create_topic("former")
    world.cut("broker-1", world.zookeeper)
    here, there = await connect("broker-1"), await connect("broker-2")
    delete = DeleteTopicsRequest(topics=[DeleteTopicsTopic(name="former")], timeout_ms=60_000)
    (deleted,) = (await there.send(DELETE_TOPICS, delete, timeout_ms=90_000)).responses
    assert deleted.error_code == 0
    assert await create(there, "new") == 0
    assert await create(here, "former") == ErrorCode.REQUEST_TIMED_OUT
    delete = DeleteTopicsRequest(topics=[DeleteTopicsTopic(name="new")], timeout_ms=60_000)
    (deleted,) = (await here.send(DELETE_TOPICS, delete, timeout_ms=90_000)).responses
    assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.heal()
    await world.until(lambda: world.coordinator("g") is not None)
    async with asyncio.timeout(60):
        while await create(here, "former"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await create(there, "former") == ErrorCode.TOPIC_ALREADY_EXISTS
    here.close()
    there.close()


async def create(broker: Connection, name: str) -> int:
    """Create a topic; return the error code."""
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    (created,) = (await broker.send(CREATE_TOPICS, request, timeout_ms=90_000)).topics
    return created.error_code


async def test_members_are_assigned_partitions_of_dead_broker(partage_world: PartageWorld) -> None:
    """A new member is assigned all of them, reads the available ones, and the others later."""
    world = partage_world
    servers = world.bootstrap_servers
    await world.create_topic("whole", partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for partition in range(3):
            await producer.send_and_wait("whole", b"x", partition=partition)
    world.kill("broker-2")
    await world.until(lambda: world.coordinator("g") not in {None, "broker-2"})
    available = {n for n in range(3) if world.leader("whole", n) != "broker-2"}
    read: set[int] = set()

    async def reads(wanted: set[int]) -> bool:
        read.update(record.partition for record in await consumer.poll(100))
        return read == wanted

    async with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["whole"])
        await world.until(lambda: reads(available))
        assert {partition for _, partition in consumer.assignment()} == {0, 1, 2}
        assert not await reads({0, 1, 2})
        world.restart("broker-2")
        await world.until(lambda: reads({0, 1, 2}))
