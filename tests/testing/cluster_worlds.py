"""A program in a world with three brokers: a shop, workers, a copier with transactions, a monitor.

`run_cluster_world` runs it with faults of the brokers, and checks that each order is processed and
copied.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from partage import Consumer
from partage.testing import PartageWorld

COUNT = 60
PARTITIONS = 6
#: Groups of different shards, so that each broker coordinates one of them.
GROUPS = ("group-0", "group-1", "group-2")


def orders() -> set[bytes]:
    return {b"order %d" % number for number in range(COUNT)}


async def sell(world: PartageWorld) -> None:
    """Send each order to the next partition whose broker accepts it, at least once."""
    async with AIOKafkaProducer(
        bootstrap_servers=world.bootstrap_servers, request_timeout_ms=5_000
    ) as producer:
        for number in range(COUNT):
            partition = number % PARTITIONS
            while True:
                try:
                    await producer.send_and_wait(
                        "orders", b"order %d" % number, partition=partition
                    )
                    break
                except KafkaError:
                    partition = (partition + 1) % PARTITIONS
            await asyncio.sleep(0.5)


async def work(world: PartageWorld, group: str, done: set[bytes]) -> None:
    """Process orders, and commit often."""
    async with Consumer(
        world.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=10_000,
        auto_commit_interval_ms=200,
    ) as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            await asyncio.sleep(0.1)
            world.processed(record)
            done.add(record.value)


async def copy(world: PartageWorld) -> None:
    """Copy each order once: consume, produce and commit in one transaction."""
    servers = world.bootstrap_servers
    async with (
        AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="copiers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=10_000,
        ) as consumer,
        AIOKafkaProducer(bootstrap_servers=servers, transactional_id="copier") as producer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=500)
            if batches:
                async with producer.transaction():
                    for records in batches.values():
                        for record in records:
                            await producer.send_and_wait("copies", record.value)
                    positions = {each: batches[each][-1].offset + 1 for each in batches}
                    await producer.send_offsets_to_transaction(positions, "copiers")


async def watch(world: PartageWorld, group: str) -> None:
    """Ask for the committed offsets all the time, on a connection that stays open."""
    async with AIOKafkaConsumer(
        bootstrap_servers=world.bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        request_timeout_ms=11_000,
        session_timeout_ms=10_000,
    ) as consumer:
        partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        while True:
            for partition in partitions:
                try:
                    await consumer.committed(partition)
                except KafkaError:
                    await asyncio.sleep(0.2)
            await asyncio.sleep(0.2)


async def disturb(world: PartageWorld, for_s: float) -> None:
    """Cause a fault of a broker every few seconds, as the seed says."""
    end_s = world.elapsed_s + for_s
    while world.elapsed_s < end_s:
        broker, last_s = world.rng.choice(world.brokers), world.rng.uniform(1, 15)
        match world.rng.randrange(4):
            case 0 if world.is_running(broker):
                world.kill(broker)
            case 1:
                world.pause(broker, last_s)
            case 2:
                world.cut(broker, world.zookeeper, last_s)
            case 3:
                world.expire_session(broker)
        await asyncio.sleep(world.rng.uniform(0, 6))
        for each in world.brokers:
            if not world.is_running(each) and world.rng.random() < 0.5:
                world.restart(each)


def run_cluster_world(
    seed: int, directory: Path, *, with_aiokafka_consumers: bool = True
) -> PartageWorld:
    """Run the program in the world of a seed.

    Args:
        seed: the seed.
        directory: the directory of the world.
        with_aiokafka_consumers: run the copier and the monitor, too.

    Raises:
        InvariantError: a rule is broken, or an order was not processed and copied.
    """
    world = PartageWorld(seed, directory, brokers=3)
    done: dict[str, set[bytes]] = {group: set() for group in GROUPS}

    async def scenario() -> None:
        for topic in ("orders", "copies"):
            await world.create_topic(topic, partitions=PARTITIONS)
        world.process(lambda: sell(world), name="shop", restart_after_s=1)
        for number, group in enumerate((*GROUPS, GROUPS[0])):
            main = partial(work, world, group, done[group])
            world.process(main, name=f"worker-{number}", restart_after_s=1)
        if with_aiokafka_consumers:
            world.process(lambda: copy(world), name="copier", restart_after_s=1)
            for group in GROUPS:
                main = partial(watch, world, group)
                world.process(main, name=f"monitor-{group}", restart_after_s=1)

        @world.eventually
        def each_order_is_processed() -> bool:
            return all(processed == orders() for processed in done.values())

        @world.eventually
        def each_order_is_copied() -> bool:
            copies = {record.value for record in world.records("copies")}
            return copies >= orders() or not with_aiokafka_consumers

        await asyncio.sleep(8)
        await disturb(world, 40)
        world.heal()
        if with_aiokafka_consumers:
            # aiokafka 0.14 may wait for ever after it lost a connection during FindCoordinator
            world.kill("copier")
            world.restart("copier")

    world.run(scenario)
    return world
