"""A user's workers with planted bugs, and the same workers without them.

Each worker reads orders from a topic and saves them; `find_lost_orders` runs one of them in a world
and returns the orders that were never saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from partage import Consumer, RebalanceListener
from partage.testing import PartageWorld

ORDERS = [b"order %d" % number for number in range(40)]
WORKERS = ("worker-1", "worker-2")


class Database:
    """A database that outlives the workers; each access takes half a second."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []
        self.baskets: dict[bytes, frozenset[bytes]] = {}

    async def save(self, order: bytes) -> None:
        await asyncio.sleep(0.5)
        self.orders.append(order)

    async def load_basket(self, customer: bytes) -> frozenset[bytes]:
        await asyncio.sleep(0.5)
        return self.baskets.get(customer, frozenset())

    async def save_basket(self, customer: bytes, basket: frozenset[bytes]) -> None:
        await asyncio.sleep(0.5)
        self.baskets[customer] = basket

    async def replace_basket(
        self, customer: bytes, old: frozenset[bytes], new: frozenset[bytes]
    ) -> None:
        await asyncio.sleep(0.5)
        if self.baskets.get(customer, frozenset()) != old:
            raise RuntimeError("another worker has changed the basket")
        self.baskets[customer] = new


Worker = Callable[[str, Database], Coroutine[Any, Any, None]]


class Forgetful(RebalanceListener):
    """Calls a function before partitions are given up, or after they were lost."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget

    def on_partitions_revoked(self, partitions: object) -> None:
        self._forget()


def consumer(servers: str, **options: Any) -> Consumer:
    return Consumer(
        servers,
        group_id="workers",
        auto_offset_reset="earliest",
        session_timeout_ms=10_000,
        **options,
    )


async def saves_before_the_next_poll(servers: str, database: Database) -> None:
    async with consumer(servers) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            await database.save(record.value)


async def saves_in_the_background(servers: str, database: Database) -> None:
    """Bug: auto commit regards an order as processed while it is still being saved."""
    tasks = set()
    async with consumer(servers, auto_commit_interval_ms=1_000) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            tasks.add(asyncio.ensure_future(database.save(record.value)))


async def commits_before_it_saves(servers: str, database: Database) -> None:
    """Bug: a worker that is killed between commit and save loses the order."""
    async with consumer(servers, enable_auto_commit=False) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            await reader.commit()
            await database.save(record.value)


async def drops_its_queue_on_a_rebalance(servers: str, database: Database) -> None:
    """Bug: the next owner does not read what auto commit has committed, and the queue is lost."""
    queue: list[bytes] = []

    async def save_all() -> None:
        while True:
            if queue:
                await database.save(queue[0])
                del queue[:1]
            await asyncio.sleep(0.1)

    saver = asyncio.ensure_future(save_all())
    async with consumer(servers) as reader:
        reader.subscribe(["orders"], Forgetful(queue.clear))
        async for record in reader:
            queue += [record.value]
    saver.cancel()


async def keeps_baskets_of_lost_partitions(servers: str, database: Database) -> None:
    """Bug: the cache outlives its partition, and overwrites what the other worker has saved."""
    cache: dict[bytes, frozenset[bytes]] = {}
    async with consumer(servers) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            if record.key not in cache:
                cache[record.key] = await database.load_basket(record.key)
            cache[record.key] |= {record.value}
            await database.save_basket(record.key, cache[record.key])


async def saves_baskets_late(servers: str, database: Database) -> None:
    """Bug: a paused worker saves a basket when another worker has saved newer ones."""
    cache: dict[bytes, frozenset[bytes]] = {}
    async with consumer(servers) as reader:
        reader.subscribe(["orders"], Forgetful(cache.clear))
        async for record in reader:
            if record.key not in cache:
                cache[record.key] = await database.load_basket(record.key)
            cache[record.key] |= {record.value}
            await database.save_basket(record.key, cache[record.key])


async def saves_unchanged_baskets(servers: str, database: Database) -> None:
    async with consumer(servers) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            basket = await database.load_basket(record.key)
            await database.replace_basket(record.key, basket, basket | {record.value})


async def commits_the_whole_batch(servers: str, database: Database) -> None:
    """Bug: a commit without offsets includes all records of the batch, not only the first."""
    async with consumer(servers, enable_auto_commit=False) as reader:
        reader.subscribe(["orders"])
        while True:
            for record in await reader.poll(1_000):
                await database.save(record.value)
                await reader.commit()


async def starts_at_the_end(servers: str, database: Database) -> None:
    """Bug: with ``latest``, a group skips what was produced before its first assignment."""
    async with Consumer(servers, group_id="workers", auto_offset_reset="latest") as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            await database.save(record.value)


async def ignores_errors(servers: str, database: Database) -> None:
    """Bug: an order is given up after a timeout, and the position advances."""
    async with consumer(servers) as reader:
        reader.subscribe(["orders"])
        async for record in reader:
            save = asyncio.ensure_future(database.save(record.value))
            await asyncio.sleep(0.4)
            if record.offset % 5 == 4:  # "rarely slow"
                save.cancel()
            else:
                await save


async def commits_on_a_timer(servers: str, database: Database) -> None:
    """Bug: a separate task commits the positions of orders that are not saved yet."""

    async def commit(reader: Consumer) -> None:
        while True:
            await asyncio.sleep(1)
            if reader.assignment():
                await reader.commit()

    async with consumer(servers, enable_auto_commit=False) as reader:
        reader.subscribe(["orders"])
        committer = asyncio.ensure_future(commit(reader))
        try:
            async for record in reader:
                await database.save(record.value)
        finally:
            committer.cancel()


async def saves_with_aiokafka(servers: str, database: Database) -> None:
    reader = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with reader:
        async for record in reader:
            await database.save(record.value)
            await reader.commit()


async def commits_before_it_saves_with_aiokafka(servers: str, database: Database) -> None:
    """Bug: like `commits_before_it_saves`."""
    reader = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with reader:
        async for record in reader:
            await reader.commit()
            await database.save(record.value)


async def sell(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for order in ORDERS:
            await producer.send_and_wait("orders", order, key=order[-1:])
            await asyncio.sleep(2)


def find_lost_orders(worker: Worker, seed: int, directory: Path) -> set[bytes]:
    """Run a worker in a world with faults; return the orders that it has not saved."""
    world, database = PartageWorld(seed, directory), Database()
    missing = set(ORDERS)

    async def scenario() -> None:
        servers = world.bootstrap_servers
        await world.create_topic("orders", partitions=4)
        world.process(lambda: sell(servers), name="shop", restart_after_s=1)
        for name in WORKERS:
            world.process(lambda: worker(servers, database), name=name, restart_after_s=1)
        world.draw_faults(8, within_s=80, targets=[*WORKERS])
        await asyncio.sleep(90)
        world.heal()
        for _ in range(120):
            saved = set().union(*database.baskets.values()) or set(database.orders)
            missing.difference_update(missing & saved)
            missing.update(set(ORDERS) - saved)
            if not missing:
                return
            await asyncio.sleep(1)

    world.run(scenario)
    return missing
