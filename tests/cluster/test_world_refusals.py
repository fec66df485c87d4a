"""Brokers that cannot join a cluster while another broker has their id or address.

Virtual time makes the sessions of killed brokers expire. `cluster.test_startup_refusals` has
refusals of broker processes.
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from partage.log.memory_disk import MemoryDisk
from partage.model.addresses import Address
from partage.testing import PartageWorld
from partage.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsTopic
from world_connections import connect

from .guest_broker import GuestBroker

pytestmark = pytest.mark.partage_world(brokers=2)


async def test_copied_data_directory_does_not_stop_live_broker(partage_world: PartageWorld) -> None:
    world = partage_world
    copied = GuestBroker(world, 2, deepcopy(world._brokers._disks["broker-2"]))
    assert "broker id 2 is in use by the broker at broker-2:9092" in await copied.start()
    assert world.is_running("broker-2")
    world.kill("broker-2")
    assert await copied.start() == ""  # once the other broker's session has expired
    await copied.stop()


async def test_address_in_use_is_refused(partage_world: PartageWorld) -> None:
    """The address of a killed broker is free once its session has expired."""
    world = partage_world
    third = GuestBroker(world, 3, advertised=Address("broker-2", 9092))
    assert "address broker-2:9092 is in use by broker 2" in await third.start()
    assert world.is_running("broker-2")
    world.kill("broker-2")
    assert await third.start() == ""
    await third.stop()


async def test_empty_directory_for_broker_with_records_is_refused(
    partage_world: PartageWorld,
) -> None:
    """Neither at first nor after a refusal because the id was in use."""
    world = partage_world
    empty = GuestBroker(world, 2, MemoryDisk())
    assert "broker id 2 is in use by" in await empty.start()
    await world.create_topic("flights", partitions=2)
    world.kill("broker-2")
    assert "broker 2 of this cluster holds partitions of flights, but" in await empty.start()
    world.restart("broker-2")
    await world.until(world._all_brokers_have_started)
    world.kill("broker-2")
    connection = await connect("broker-1")
    request = DeleteTopicsRequest(topics=[DeleteTopicsTopic(name="flights")], timeout_ms=60_000)
    (deleted,) = (await connection.send(DELETE_TOPICS, request, timeout_ms=60_000)).responses
    assert deleted.error_code == 0
    connection.close()
    assert await empty.start() == ""
    await empty.stop()
    world._brokers._disks["broker-2"] = empty.disk
