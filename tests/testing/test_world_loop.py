"""The event loop of simulated worlds: time, executors, refusals and the network."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
import uuid
import weakref
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaProducer

from partage import Consumer as AsyncConsumer
from partage.client.consumer.arguments import SubscriptionPattern
from partage.client.errors import ClientError
from partage.sync import Consumer
from partage.testing import PartageWorld
from partage.testing.world import garbage
from partage.testing.world.errors import (
    InvariantError,
    NotSimulatedError,
    StalledWorldError,
    WaitTimeoutError,
)


@pytest.fixture
def world(tmp_path) -> PartageWorld:
    return PartageWorld(1, tmp_path)


def run(world: PartageWorld, work):
    """Run a coroutine function in a world and return its result."""
    results = []

    async def test():
        results.append(await work())

    world.run(test)
    return results[0]


def poll_blocking():
    with Consumer("broker-1:9092", group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1000)


async def echo_once(reader, writer):
    writer.write(await reader.read(1000))
    await writer.drain()
    writer.close()


def test_sleep_advances_all_clocks_at_once(world):
    async def work():
        clocks = (time.time, time.monotonic, time.perf_counter, asyncio.get_running_loop().time)
        before = [clock() for clock in clocks]
        await asyncio.sleep(3600)
        return [clock() - start for clock, start in zip(clocks, before, strict=True)]

    began = time.monotonic()
    assert run(world, work) == [pytest.approx(3600, abs=0.01)] * 4
    assert time.monotonic() - began < 60


def test_same_seed_gives_same_randomness(tmp_path):
    async def work():
        return random.random(), uuid.uuid4(), os.urandom(4), await asyncio.to_thread(time.time)

    first, second, other = (run(PartageWorld(seed, tmp_path), work) for seed in (7, 7, 8))
    assert first == second
    assert all(one != two for one, two in zip(first[:3], other[:3], strict=True))


def test_garbage_is_collected_at_the_same_time_in_each_run(tmp_path):
    async def work(world):
        class Cycle:
            def __init__(self):
                self.self = self

            def __del__(self):
                world.note("collected")

        Cycle()
        await asyncio.sleep(1)
        for _ in range(30_000):
            await asyncio.sleep(0)

    def story(threshold):
        world = PartageWorld(1, tmp_path)
        before = gc.get_threshold()
        gc.set_threshold(threshold)
        try:
            world.run(lambda: work(world))
        finally:
            gc.set_threshold(*before)
        return world.story

    assert story(10) == story(1_000_000)
    assert any("collected" in line for line in story(10))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_objects_of_the_program_are_frozen_during_a_world(world, is_frozen):
    """Also those since an earlier `gc.freeze`: each collection of a world would examine them."""
    mine: list[object] = []

    async def work():
        return any(each is mine for each in gc.get_objects())

    if is_frozen:
        gc.freeze()
    else:
        gc.unfreeze()
    mine = [[]]
    assert not run(world, work)
    assert gc.get_freeze_count() == 0


def test_garbage_of_former_worlds_is_collected_before_a_world(tmp_path, monkeypatch):
    """Worlds leave too little time between them for Python's own collections."""
    monkeypatch.setattr(garbage, "_LEFT_MIN", 0)
    monkeypatch.setattr(garbage, "_LEFT_SHARE", 0)
    left = []

    async def work():
        left.append(weakref.ref(asyncio.current_task()))

    for number in range(3):
        run(PartageWorld(number, tmp_path / str(number)), work)
    assert [each() is None for each in left[:2]] == [True, True]


KILLED_BROKER = """
import asyncio, gc, sys, weakref
from pathlib import Path
from partage import Consumer
from partage.testing import PartageWorld

async def work(world):
    await world.create_topic("t")

    async def consume():
        async with Consumer(world.bootstrap_servers, group_id="g") as consumer:
            consumer.subscribe(["t"])
            await consumer.poll(60_000)

    world.process(consume, name="reader")
    await asyncio.sleep(1)  # the coordinator waits longer for other members
    world.kill(world.broker)
    await asyncio.sleep(1)
    world.kill("reader")

def left_world():
    world = PartageWorld(1, Path(sys.argv[1]), {"group.initial.rebalance.delay.ms": "10000"})
    world.run(lambda: work(world))
    return weakref.ref(world)

left = left_world()
gc.collect()
print("freed" if left() is None else "left")
"""


def test_world_is_freed_although_its_broker_was_killed_with_a_request(tmp_path):
    """The request refers to its connection, and the shard to the request.

    In another process, because here the test runner may refer to a world.
    """
    command = [sys.executable, "-c", KILLED_BROKER, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "freed", ended.stdout + ended.stderr


def test_wall_clock_of_a_process_is_wrong_also_after_a_restart(world):
    seen = []

    async def look():
        seen.append((time.time(), time.time_ns(), time.monotonic()))
        await asyncio.sleep(5)
        seen.append((time.time(), time.time_ns(), time.monotonic()))

    async def work():
        world.process(look, name="worker")
        await asyncio.sleep(1)
        before_s = time.time()
        world.set_wall_clock("worker", -30)
        assert time.time() == before_s, "the clock of the test is right"
        await asyncio.sleep(5)
        world.restart("worker")
        await asyncio.sleep(1)

    run(world, work)
    (first, first_ns, began), (later, later_ns, ended), (restarted, _, _) = seen
    assert ended - began == pytest.approx(5, abs=0.1)
    assert later - first == pytest.approx(-25, abs=0.1)
    assert later_ns - first_ns == pytest.approx(-25e9, abs=1e8)
    assert restarted < later + 2


def test_wall_clock_of_a_broker_is_wrong(world):
    """Records without a timestamp of their producer get that of the broker."""

    async def work():
        configs = {"message.timestamp.type": "LogAppendTime"}
        await world.create_topic("t", configs=configs)
        world.set_wall_clock(world.broker, 3_600)
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"a")
        (record,) = world.records("t")
        return record.timestamp / 1000 - time.time()

    assert run(world, work) == pytest.approx(3_600, abs=1)


def test_machine_is_restored_after_a_world(world):
    before = (time.time, time.sleep, os.urandom, threading.Thread.start, random.getstate())

    async def work():
        return random.random()

    run(world, work)
    assert (time.time, time.sleep, os.urandom, threading.Thread.start, random.getstate()) == before


def test_other_threads_keep_the_machines_time(world):
    readings, may_end = [], threading.Event()

    def read():
        while not may_end.wait(0.001):
            readings.append(time.time())
            time.sleep(0)

    async def work():
        for _ in range(20):
            await asyncio.sleep(3600)

    reader = threading.Thread(target=read)
    began = time.time()
    reader.start()
    run(world, work)
    may_end.set()
    reader.join()
    assert readings
    assert all(began - 60 < at < began + 600 for at in readings)


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: time.sleep(1), "use asyncio.sleep"),
        (lambda: threading.Thread(target=print).start(), "use asyncio.to_thread"),
        (poll_blocking, "await something instead"),
    ],
)
def test_blocking_use_is_refused_with_advice(world, use, advice):
    async def work():
        use()

    with pytest.raises(NotSimulatedError, match=advice):
        run(world, work)


def test_busy_task_stalls_the_world(world):
    async def work():
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(StalledWorldError, match=r"add an asyncio\.sleep"):
        run(world, work)


def test_condition_that_never_holds_times_out(world):
    with pytest.raises(WaitTimeoutError, match="within 5 virtual seconds"):
        run(world, lambda: world.until(lambda: False, timeout_s=5))


def test_broken_invariant_fails_the_test(world):
    async def work():
        began = world.elapsed_s

        @world.always
        def it_is_early():
            return world.elapsed_s < began + 10

        await asyncio.sleep(100)

    with pytest.raises(InvariantError, match="it_is_early does not hold at 10"):
        run(world, work)


def test_failed_process_fails_the_test(world):
    async def fail():
        raise KeyError("boom")

    async def work():
        world.process(fail, name="p")
        await asyncio.sleep(100)

    with pytest.raises(KeyError, match="boom"):
        run(world, work)
    assert any("failed: KeyError" in line for line in world.story)


def test_process_is_restarted_after_a_failure(world):
    starts = []

    async def fail_twice():
        starts.append(world.elapsed_s)
        if len(starts) < 3:
            raise KeyError

    async def work():
        world.process(fail_twice, name="p", restart_after_s=5)
        await asyncio.sleep(100)

    run(world, work)
    assert [round(at - starts[0]) for at in starts] == [0, 5, 10]


def test_streams_carry_bytes_between_processes(world):
    async def serve():
        async with await asyncio.start_server(echo_once, port=80) as server:
            await server.serve_forever()

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("server", 80)
        writer.write(b"hello")
        answer = await reader.read()
        writer.close()
        return answer

    assert run(world, work) == b"hello"


def test_connection_attempt_that_is_given_up_leaves_no_connection(world):
    async def serve():
        async with await asyncio.start_server(echo_once, port=80) as server:
            await server.serve_forever()

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        given_up = 0
        for _ in range(40):
            try:
                async with asyncio.timeout(0.002):
                    _, writer = await asyncio.open_connection("server", 80)
                    writer.close()
            except TimeoutError:
                given_up += 1
        await asyncio.sleep(1)
        return given_up > 5, world.connection_count("test"), world.connection_count("server")

    assert run(world, work) == (True, 0, 0)


def test_killed_process_resets_its_connections_and_runs_no_code(world):
    ended = []

    async def serve():
        try:
            async with await asyncio.start_server(lambda reader, writer: None, port=80) as server:
                await server.serve_forever()
        finally:
            ended.append(world.elapsed_s)

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        reader, _ = await asyncio.open_connection("server", 80)
        world.kill("server")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 80)
        assert not world.is_running("server")
        return list(ended)

    assert run(world, work) == []


def test_cut_holds_bytes_until_it_is_healed(world):
    received = []

    async def serve():
        async def receive(reader, writer):
            received.append((await reader.read(100), world.elapsed_s))

        async with await asyncio.start_server(receive, port=80) as server:
            await server.serve_forever()

    async def send():
        _, writer = await asyncio.open_connection("server", 80)
        writer.write(b"a")
        await asyncio.sleep(1000)

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        world.process(send, name="client")
        world.cut("client", "server", 30)
        await asyncio.sleep(60)

    run(world, work)
    assert received[0][0] == b"a"
    assert 31 < received[0][1] < 32


def test_bytes_keep_their_order_when_a_cut_is_healed(world):
    sent = bytes(range(200))
    received = []

    async def serve():
        async def receive(reader, writer):
            received.append(await reader.readexactly(len(sent)))

        async with await asyncio.start_server(receive, port=80) as server:
            await server.serve_forever()

    async def send():
        _, writer = await asyncio.open_connection("server", 80)
        for value in sent:
            writer.write(bytes([value]))
            await asyncio.sleep(0.0003)
        await asyncio.sleep(1000)

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        world.process(send, name="client")
        await asyncio.sleep(0.01)
        world.cut("client", "server", 0.02)
        await asyncio.sleep(60)

    run(world, work)
    assert received == [sent]


def test_paused_process_continues_where_it_was(world):
    ticks = []

    async def tick():
        while True:
            ticks.append(round(world.elapsed_s - ticks[0]) if ticks else world.elapsed_s)
            await asyncio.sleep(1)

    async def work():
        world.process(tick, name="p")
        await asyncio.sleep(2.5)
        world.pause("p", 9.7)
        await asyncio.sleep(12)

    run(world, work)
    assert ticks[1:] == [1, 2, 12, 13, 14]


def test_slow_reader_pauses_the_writer(world):
    async def serve():
        async def receive(reader, writer):
            await asyncio.sleep(50)
            while await reader.read(100_000):
                pass

        async with await asyncio.start_server(receive, port=80) as server:
            await server.serve_forever()

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        _, writer = await asyncio.open_connection("server", 80)
        began = world.elapsed_s
        for _ in range(10):
            writer.write(bytes(100_000))
            await writer.drain()
        return world.elapsed_s - began

    assert run(world, work) > 49


def test_closed_connection_is_not_taken_for_a_use_of_tls(world):
    """A client probes for TLS if a port closes its connection."""

    async def serve():
        async def refuse(reader, writer):
            await reader.read(1)
            writer.close()

        async with await asyncio.start_server(refuse, port=80) as server:
            await server.serve_forever()

    async def work():
        world.process(serve, name="server")
        await asyncio.sleep(1)
        async with AsyncConsumer("server:80", group_id="g") as consumer:
            consumer.subscribe(["t"])
            await consumer.poll(5_000)

    with pytest.raises(ClientError):
        run(world, work)


def test_world_ends_soon_after_a_process_was_killed_at_its_start(world):
    async def wait():
        await asyncio.sleep(100)

    async def work():
        world.process(wait, name="p")
        world.kill("p")
        world.restart("p")
        await asyncio.sleep(1)
        world.kill("p")

    run(world, work)
    assert world.elapsed_s < 100


async def assigned_partitions(world, patterns) -> list[int]:
    """Return how many partitions each member with a pattern gets."""
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                AsyncConsumer(world.bootstrap_servers, group_id="g", group_protocol="consumer")
            )
            for _ in patterns
        ]
        for member, pattern in zip(members, patterns, strict=True):
            member.subscribe(SubscriptionPattern(pattern))
        for _ in range(30):
            for member in members:
                await member.poll(1000)
        return [len(member.assignment()) for member in members]


@pytest.mark.parametrize(
    ("topics", "patterns"),
    [(6, [f"orders{n}" for n in range(6)]), (1, ["|".join(["orders0"] * 72)])],
    ids=["many", "long"],
)
def test_work_of_a_broker_in_threads_runs_in_the_world(world, topics, patterns):
    """Regular expressions that a broker matches in a thread."""

    async def work():
        for number in range(topics):
            await world.create_topic(f"orders{number}", partitions=2)
        return await assigned_partitions(world, patterns)

    assert run(world, work) == [2] * len(patterns)


def test_assignor_that_a_broker_runs_in_a_thread_runs_in_the_world(tmp_path):
    world = PartageWorld(1, tmp_path, {"group.consumer.assignors": "sticky"})

    async def work():
        await world.create_topic("orders", partitions=2)
        return await assigned_partitions(world, ["orders"])

    assert run(world, work) == [2]
