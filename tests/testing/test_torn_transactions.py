"""Worlds notice transactions of a user's program that take effect in part."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from partage.testing import PartageWorld
from partage.testing.world.errors import InvariantError

COUNT = 12
PLACE = TopicPartition("orders", 0)


@pytest.fixture
def world(tmp_path) -> PartageWorld:
    return PartageWorld(1, tmp_path)


async def sell(world):
    async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("orders", b"order %d" % number, partition=0)
            await asyncio.sleep(0.5)


def consumer_of(world, **options):
    return AIOKafkaConsumer(
        "orders",
        bootstrap_servers=world.bootstrap_servers,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        **options,
    )


def producer_of(world, transactional_id="worker"):
    servers = world.bootstrap_servers
    return AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)


async def write_result(world, producer, record):
    world.processed(record)
    await producer.send_and_wait("invoices", record.value, partition=0)


async def commits_offsets_in_the_transaction(world):
    async with consumer_of(world) as consumer, producer_of(world) as producer:
        async for record in consumer:
            async with producer.transaction():
                await write_result(world, producer, record)
                await asyncio.sleep(0.1)
                await producer.send_offsets_to_transaction({PLACE: record.offset + 1}, "workers")


async def commits_offsets_before_the_transaction_ends(world):
    async with consumer_of(world) as consumer, producer_of(world) as producer:
        async for record in consumer:
            async with producer.transaction():
                await write_result(world, producer, record)
                await consumer.commit({PLACE: record.offset + 1})
                await asyncio.sleep(0.5)


async def commits_offsets_before_it_aborts(world):
    async with consumer_of(world) as consumer, producer_of(world) as producer:
        async for record in consumer:
            await producer.begin_transaction()
            await write_result(world, producer, record)
            await consumer.commit({PLACE: record.offset + 1})
            if record.offset == 5:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()


async def commits_offsets_after_the_transaction(world):
    async with consumer_of(world) as consumer, producer_of(world) as producer:
        async for record in consumer:
            async with producer.transaction():
                await write_result(world, producer, record)
            await asyncio.sleep(0.4)
            await consumer.commit({PLACE: record.offset + 1})


async def commits_automatically(world):
    async with consumer_of(world) as consumer, producer_of(world) as producer:

        async def commit_regularly():
            while True:
                await asyncio.sleep(0.1)
                await consumer.commit()

        committing = asyncio.ensure_future(commit_regularly())
        async for record in consumer:
            async with producer.transaction():
                await write_result(world, producer, record)
                await asyncio.sleep(0.5)
        committing.cancel()


async def aborts_and_processes_again(world):
    """Correct: the offsets of an aborted transaction are not committed either."""
    failed = False
    async with consumer_of(world) as consumer, producer_of(world) as producer:
        async for record in consumer:
            await producer.begin_transaction()
            await write_result(world, producer, record)
            await producer.send_offsets_to_transaction({PLACE: record.offset + 1}, "workers")
            if record.offset == 5 and not failed:
                failed = True
                await producer.abort_transaction()
                consumer.seek(PLACE, record.offset)
            else:
                await producer.commit_transaction()


async def has_two_producers(world):
    """Correct: each result has its transaction, and the offset is in the second one."""
    async with (
        consumer_of(world) as consumer,
        producer_of(world, "notes") as notes,
        producer_of(world) as producer,
    ):
        async for record in consumer:
            async with notes.transaction():
                await notes.send_and_wait("notes", record.value, partition=0)
            async with producer.transaction():
                await write_result(world, producer, record)
                await asyncio.sleep(0.3)
                await producer.send_offsets_to_transaction({PLACE: record.offset + 1}, "workers")


def run(world, worker, *, restart_at_s):
    """Kill the worker at a time and start it again."""

    async def scenario():
        for topic in ("orders", "invoices", "notes"):
            await world.create_topic(topic, partitions=1)
        world.process(lambda: sell(world), name="shop")
        world.process(lambda: worker(world), name="worker")
        if restart_at_s is not None:
            await asyncio.sleep(restart_at_s)
            world.kill("worker")
            world.restart("worker")
        await asyncio.sleep(60)

    world.run(scenario)


@pytest.mark.parametrize(
    ("worker", "restart_at_s", "text"),
    [
        (commits_offsets_before_the_transaction_ends, 5.2, "the results do not"),
        (commits_offsets_before_it_aborts, None, "committed 6 of orders-0 for group workers"),
        (commits_offsets_after_the_transaction, 5.3, "committed its results without its offset"),
        (commits_automatically, 5.3, "the results do not"),
    ],
)
def test_torn_transaction_is_found(world, worker, restart_at_s, text):
    with pytest.raises(InvariantError, match=f"^torn: .*{text}"):
        run(world, worker, restart_at_s=restart_at_s)


@pytest.mark.parametrize(
    "worker", [commits_offsets_in_the_transaction, aborts_and_processes_again, has_two_producers]
)
@pytest.mark.parametrize("restart_at_s", [None, 5.0, 5.1, 5.2, 5.3, 5.4])
def test_atomic_program_tears_no_transaction(world, worker, restart_at_s):
    run(world, worker, restart_at_s=restart_at_s)
    assert not [line for line in world.story if "is broken" in line]


def test_program_may_be_allowed_to_tear_transactions(world):
    world.allow("torn")
    run(world, commits_offsets_after_the_transaction, restart_at_s=5.3)
