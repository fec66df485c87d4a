"""Misbehaviour of published clients that worlds have found: docs/found.md."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiokafka
import pytest
from aiokafka import AIOKafkaProducer

from partage.testing import PartageWorld
from testing.found_programs import MESSAGE_BYTES_MAX, copy, read_committed, transfer

pytestmark = pytest.mark.skipif(
    not aiokafka.__version__.startswith("0.14."), reason="docs/found.md is about aiokafka 0.14"
)


async def test_transaction_is_committed_without_a_rejected_record(
    partage_world: PartageWorld,
) -> None:
    servers = partage_world.bootstrap_servers
    await partage_world.create_topic(
        "accounts", partitions=2, configs={"max.message.bytes": MESSAGE_BYTES_MAX}
    )
    await transfer(servers, "accounts")
    assert await read_committed(servers, "accounts") == [b"-100"]


@pytest.mark.parametrize("partage_world_seed", [2], indirect=True)
async def test_paused_copier_commits_what_another_has_copied(partage_world: PartageWorld) -> None:
    world, servers = partage_world, partage_world.bootstrap_servers
    for topic in ("orders", "invoices"):
        await world.create_topic(topic, partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(60):
            await producer.send_and_wait("orders", b"%d" % number)
    for name in ("worker-1", "worker-2"):
        world.process(
            lambda name=name: copy(servers, "orders", "invoices", name),
            name=name,
            restart_after_s=1,
        )
    world.draw_faults(6, within_s=20, targets=["worker-1", "worker-2"])
    await asyncio.sleep(120)
    world.heal()
    await asyncio.sleep(60)
    counts = Counter(await read_committed(servers, "invoices"))
    assert len(counts) == 60
    assert max(counts.values()) == 2
