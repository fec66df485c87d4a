"""A ZooKeeper outage that is longer than members' sessions, shorter than brokers' sessions."""

from __future__ import annotations

import asyncio

import pytest

from broker.group_requests import heartbeat_request
from partage.testing import PartageWorld
from partage.wire.apis.heartbeat import HEARTBEAT
from world_connections import connect

from .world_group_client import WorldGroupClient

SESSION_MS = 30_000
MEMBERS_MS = 6_000
#: Longer than the lease of a broker, by more than a member's session.
AWAY_S = 28


@pytest.mark.partage_world(brokers=2)
@pytest.mark.partage_broker({"zookeeper.session.timeout.ms": SESSION_MS})
async def test_zookeeper_outage_expires_no_waiting_member(partage_world: PartageWorld) -> None:
    """A member that, like kafka-python's, keeps its id and waits for the response."""
    world = partage_world
    async with WorldGroupClient(world, "g") as group:
        joined = await group.join_and_sync(session_timeout_ms=MEMBERS_MS)
        connection = await connect(await group.find())
    for broker in world.brokers:
        world.cut(broker, world.zookeeper, AWAY_S)
    longest_s, until_s = 0.0, world.elapsed_s + AWAY_S + 5
    while world.elapsed_s < until_s:
        asked_s = world.elapsed_s
        response = await connection.send(
            HEARTBEAT, heartbeat_request("g", joined), timeout_ms=2 * SESSION_MS
        )
        assert response.error_code == 0
        longest_s = max(longest_s, world.elapsed_s - asked_s)
        await asyncio.sleep(MEMBERS_MS / 4000)  # a member's heartbeat interval
    connection.close()
    assert longest_s > MEMBERS_MS / 1000, "it had no answer for longer than its session"
    assert not any("expired" in line for line in world.story)
