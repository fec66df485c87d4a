"""Test an asyncio consumer in a simulated world: kills, pauses and cuts, in virtual time.

    pytest examples/test_simulated_world.py --worlds 20

docs/your-code.md explains it, with variants that have bugs.
"""

import asyncio

from aiokafka import AIOKafkaProducer

from partage import Consumer
from partage.testing import PartageWorld

ORDERS = [b"order %d" % number for number in range(40)]


class Database:
    """A database that outlives the workers; to save an order takes a second."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []

    async def save(self, order: bytes) -> None:
        """Save an order."""
        await asyncio.sleep(1)
        self.orders.append(order)


async def sell(servers: str) -> None:
    """Produce all orders."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for order in ORDERS:
            await producer.send_and_wait("orders", order, key=order[-1:])
            await asyncio.sleep(0.5)


async def work(servers: str, database: Database) -> None:
    """Save the orders of a group's topic."""
    async with Consumer(servers, group_id="workers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            await database.save(record.value)


async def test_each_order_is_saved(partage_world: PartageWorld) -> None:
    """No order is lost, whatever happens to workers and broker."""
    world, database = partage_world, Database()
    await world.create_topic("orders", partitions=4)
    servers = world.bootstrap_servers
    world.process(lambda: sell(servers), name="shop", restart_after_s=1)
    for name in ("worker-1", "worker-2"):
        world.process(lambda: work(servers, database), name=name, restart_after_s=1)
    world.draw_faults(5, within_s=30, targets=["worker-1", "worker-2", world.broker])

    @world.eventually
    def each_order_is_saved() -> bool:
        return set(database.orders) == set(ORDERS)

    await asyncio.sleep(60)
