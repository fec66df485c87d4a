"""Idle long polls of a simulated world are answered once for many, without a visible effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from partage import Consumer
from partage.broker.apis.fetch import FetchHandler
from partage.testing import PartageWorld

CLIENTS = ["aiokafka", "classic", "consumer"]
#: A long poll of the clients, and the time for its request and answer, in seconds.
POLL_S = 0.51


@pytest.fixture
def world(tmp_path: Path) -> PartageWorld:
    return PartageWorld(1, tmp_path)


def consumer(world: PartageWorld, client: str, **options):
    options = {"group_id": "workers", "auto_offset_reset": "earliest", **options}
    if client == "aiokafka":
        return AIOKafkaConsumer("orders", bootstrap_servers=world.bootstrap_servers, **options)
    reader = Consumer(world.bootstrap_servers, group_protocol=client, **options)
    reader.subscribe(["orders"])
    return reader


async def read(world: PartageWorld, client: str, arrived: list[tuple[float, bytes]]) -> None:
    """Read for ever; add the time and the value of each record to a list."""
    async with consumer(world, client) as reader:
        await read_from(reader, world, arrived)


async def read_from(reader, world: PartageWorld, arrived: list[tuple[float, bytes]]) -> None:
    async for record in reader:
        arrival = world.elapsed_s, record.value
        arrived.append(arrival)


async def send(world: PartageWorld, *values: bytes, partition: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait("orders", value, partition=partition)


@pytest.fixture
def fetches(world, monkeypatch) -> list[float]:
    """The times of all fetches."""
    times: list[float] = []
    run = FetchHandler.run

    def run_and_count(handler: FetchHandler) -> None:
        times.append(world.elapsed_s)
        run(handler)

    monkeypatch.setattr(FetchHandler, "run", run_and_count)
    return times


def run(world: PartageWorld, work: Callable, scenario: Callable, partitions: int = 1) -> None:
    async def test() -> None:
        await world.create_topic("orders", partitions=partitions)
        world.process(work, name="worker")
        await scenario()

    world.run(test)


@pytest.mark.parametrize("client", CLIENTS)
def test_idle_consumer_sends_few_fetches(world, client, fetches):
    async def work():
        await read(world, client, [])

    async def scenario():
        await asyncio.sleep(30)
        fetches.clear()
        await asyncio.sleep(600)
        assert 0 < len(fetches) <= 80, "one in about ten seconds"

    run(world, work, scenario)


@pytest.mark.parametrize("client", CLIENTS)
def test_new_record_is_delivered_at_once(world, client):
    arrived = []

    async def work():
        await read(world, client, arrived)

    async def scenario():
        await asyncio.sleep(35.3)
        began_s = world.elapsed_s
        await send(world, b"late")
        await asyncio.sleep(1)
        assert [value for _, value in arrived] == [b"late"]
        assert arrived[0][0] - began_s < 0.1

    run(world, work, scenario)


@pytest.mark.parametrize("client", CLIENTS)
def test_seek_of_an_idle_consumer_takes_effect_after_one_poll(world, client):
    arrived = []

    async def work():
        async with consumer(world, client) as reader:
            reading = asyncio.ensure_future(read_from(reader, world, arrived))
            for after_s in (30.2, 7.3):
                await asyncio.sleep(after_s)
                arrived.clear()
                began_s = world.elapsed_s
                for partition in reader.assignment():
                    reader.seek(partition, 0)
                await asyncio.sleep(1)
                assert [value for _, value in arrived] == [b"first"]
                assert arrived[0][0] - began_s < POLL_S
            reading.cancel()

    async def scenario():
        await send(world, b"first")
        await asyncio.sleep(50)
        assert not world.is_running("worker")

    run(world, work, scenario)


@pytest.mark.parametrize("client", CLIENTS)
def test_rebalance_of_idle_consumers_takes_effect_after_one_poll(world, client):
    arrived = []

    async def work():
        await read(world, client, arrived)

    async def scenario():
        world.process(work, name="second")
        await asyncio.sleep(31.7)
        world.kill("second")
        await send(world, b"zero", partition=0)
        await send(world, b"one", partition=1)
        began_s = world.elapsed_s
        await world.until(lambda: len(arrived) == 2)
        assert arrived[1][0] - began_s < 60
        rebalanced = [line for line in world.story if "assigned partitions" in line]
        if client == "aiokafka":
            assert arrived[1][0] - float(rebalanced[-1].split()[0]) < 2 * POLL_S

    run(world, work, scenario, partitions=2)


def test_short_request_timeout_does_not_expire(world, fetches):
    async def work():
        async with consumer(world, "aiokafka", request_timeout_ms=1_600) as reader:
            async for _ in reader:
                pass

    async def scenario():
        await asyncio.sleep(5)
        fetches.clear()
        await asyncio.sleep(60)
        assert 0 < len(fetches) < 100
        assert not [line for line in world.story if "Failed fetch" in line]

    run(world, work, scenario)


def test_polls_of_user_code_are_not_left_out(world):
    """A consumer that acts on empty answers gets each of them."""
    lengths = []

    async def work():
        async with consumer(world, "aiokafka", fetch_max_wait_ms=300) as reader:
            for _ in range(40):
                began_s = world.elapsed_s
                await reader.getmany(timeout_ms=400)
                lengths.append(world.elapsed_s - began_s)

    async def scenario():
        await asyncio.sleep(60)
        assert len(lengths) == 40
        assert max(lengths[20:]) < 0.41

    run(world, work, scenario)


def test_records_below_the_wanted_bytes_arrive_after_one_poll(world):
    arrived = []

    async def work():
        async with consumer(world, "classic", fetch_min_bytes=10_000) as reader:
            await read_from(reader, world, arrived)

    async def scenario():
        await asyncio.sleep(40)
        await send(world, b"few bytes")
        sent_s = world.elapsed_s
        await world.until(lambda: arrived)
        assert arrived[0][0] - sent_s < POLL_S

    run(world, work, scenario)


@pytest.mark.parametrize("fault", ["kill", "pause", "cut"])
def test_record_arrives_after_a_fault_of_an_idle_consumer(world, fault):
    arrived = []

    async def work():
        await read(world, "aiokafka", arrived)

    async def scenario():
        await asyncio.sleep(33)
        if fault == "kill":
            world.kill(world.broker)
            await asyncio.sleep(3)
            world.restart(world.broker)
        elif fault == "pause":
            world.pause("worker", 12)
        else:
            world.cut("worker", world.broker, 12)
        await asyncio.sleep(15)
        await send(world, b"late")
        await world.until(lambda: [value for _, value in arrived] == [b"late"])

    run(world, work, scenario)


async def sleep_often():
    for _ in range(1_000):
        await asyncio.sleep(0.3)


async def wait_for_ever():
    await asyncio.Event().wait()


async def run_in_task_of_asyncio():
    task = asyncio.create_task(asyncio.wait_for(sleep_often(), 100))
    await wait_for_ever()
    task.cancel()


async def run_only_asyncio():
    tasks = [asyncio.create_task(asyncio.sleep(0.1 * number)) for number in range(20)]
    await wait_for_ever()
    del tasks


async def run_in_generator():
    async def generate():
        await sleep_often()
        yield 1

    async for _ in generate():
        pass


async def run_callback():
    asyncio.get_running_loop().call_later(0.8, lambda: None)
    await wait_for_ever()


@pytest.mark.parametrize(
    ("main", "is_activity"),
    [
        (sleep_often, True),
        (wait_for_ever, False),
        (run_in_task_of_asyncio, True),
        (run_only_asyncio, False),
        (run_in_generator, True),
        (run_callback, True),
    ],
)
def test_code_of_the_user_is_told_from_code_of_asyncio(world, main, is_activity):
    seen = []

    async def test():
        process = world.process(main, name="worker")
        await asyncio.sleep(0.5)
        process.watch("key", lambda: seen.append(world.elapsed_s))
        await asyncio.sleep(1)
        process.unwatch("key")
        assert bool(seen) is is_activity

    world.run(test)
