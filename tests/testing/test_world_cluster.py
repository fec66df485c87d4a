"""Worlds with three brokers: failover, sessions, leases, and bugs that are planted in them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AiokafkaPartition

from partage import Consumer
from partage.testing import PartageWorld
from testing.cluster_bugs import BUGS
from testing.cluster_worlds import run_cluster_world

SESSION_S = 6.0
#: Time between the end of a session and the takeover of its shards.
TAKEOVER_S = 1.0


@pytest.fixture
def world(tmp_path: Path) -> PartageWorld:
    return PartageWorld(1, tmp_path, brokers=3)


def run(world: PartageWorld, work: Callable[[], Any]) -> Any:
    """Run a coroutine function in a world and return its result."""
    results = []

    async def test() -> None:
        results.append(await work())

    world.run(test)
    return results[0]


async def consume(world: PartageWorld, read: list[bytes], **options: Any) -> None:
    options = {"session_timeout_ms": 20_000, "auto_commit_interval_ms": 500, **options}
    async with Consumer(
        world.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **options
    ) as consumer:
        consumer.subscribe(["t"])
        async for record in consumer:
            world.processed(record)
            read.append(record.value)


async def produce(world: PartageWorld, *values: bytes, partition: int | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait("t", value, partition=partition)


def elsewhere(world: PartageWorld, broker: str) -> int:
    """Return a partition that another broker has."""
    return next(n for n in range(3) if world.leader("t", n) != broker)


def committed(world: PartageWorld) -> int:
    """Return the sum of the committed offsets; 0 while no broker knows them."""
    return sum(world.committed("g").values()) if world.coordinator("g") else 0


async def start_group(world: PartageWorld, read: list[bytes]) -> str:
    """Start a group that has processed and committed a record; return its coordinator."""
    await world.create_topic("t", partitions=3)
    world.process(lambda: consume(world, read), name="worker")
    coordinator = world.coordinator("g")
    assert coordinator is not None
    await produce(world, b"a", partition=elsewhere(world, coordinator))
    await world.until(lambda: committed(world) == 1)
    return coordinator


async def await_takeover(world: PartageWorld, former: str) -> float:
    """Return the seconds until another broker coordinates the group."""
    began_s = world.elapsed_s
    await world.until(lambda: world.coordinator("g") not in {None, former})
    return world.elapsed_s - began_s


def test_partitions_and_coordinators_are_spread(world: PartageWorld) -> None:
    async def work() -> None:
        await world.create_topic("t", partitions=3)
        await produce(world, *(b"%d" % number for number in range(20)))

    run(world, work)
    assert world.bootstrap_servers == "broker-1:9092,broker-2:9092,broker-3:9092"
    assert {world.leader("t", number) for number in range(3)} == set(world.brokers)
    assert len({world.coordinator(f"g{number}") for number in range(20)}) == 3
    assert sorted(record.value for record in world.records("t")) == sorted(
        b"%d" % number for number in range(20)
    )


def test_group_fails_over_when_its_coordinator_is_killed(world: PartageWorld) -> None:
    read: list[bytes] = []

    async def work() -> None:
        former = await start_group(world, read)
        world.kill(former)
        assert 2 * SESSION_S / 3 < await await_takeover(world, former) < SESSION_S + TAKEOVER_S
        assert committed(world) == 1
        await produce(world, b"b", partition=elsewhere(world, former))
        await world.until(lambda: committed(world) == 2)
        assert not world.is_running(former)

    run(world, work)
    assert read == [b"a", b"b"]
    assert not any("rebalance started" in line for line in world.story[-1:])


def test_records_of_a_killed_broker_are_available_after_its_restart(world: PartageWorld) -> None:
    read: list[bytes] = []

    async def work() -> None:
        coordinator = await start_group(world, read)
        partition = elsewhere(world, coordinator)
        leader = world.leader("t", partition)
        world.kill(leader)
        with pytest.raises(RuntimeError, match=rf"{leader} is not running; use world\.restart"):
            world.records("t")
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(10):
                await produce(world, b"b", partition=partition)
        world.restart(leader)
        await produce(world, b"c", partition=partition)
        await world.until(lambda: b"c" in read)

    run(world, work)
    assert read[0] == b"a"


def test_restarted_broker_waits_for_its_old_session(world: PartageWorld) -> None:
    async def work() -> float:
        await start_group(world, [])
        world.kill("broker-2")
        world.restart("broker-2")
        began_s = world.elapsed_s
        await world.until(lambda: "took over" in world.story[-1], timeout_s=2 * SESSION_S)
        return world.elapsed_s - began_s

    assert run(world, work) > SESSION_S / 2
    assert any("waiting for the old session to expire" in line for line in world.story)


def test_broker_whose_session_expires_registers_again(world: PartageWorld) -> None:
    read: list[bytes] = []

    async def work() -> None:
        former = await start_group(world, read)
        before = len(world.story)
        world.expire_session(former)
        await world.until(lambda: "registered again" in "".join(world.story), timeout_s=TAKEOVER_S)
        takers = [event.name for event in world.events[before:] if "took over" in event.text]
        assert takers[0] != former
        await world.until(lambda: committed(world) == 1)  # the new owner has loaded the group
        await produce(world, b"b")
        await world.until(lambda: read == [b"a", b"b"])

    run(world, work)
    assert any(line.endswith("expired") and "zookeeper" in line for line in world.story)


def test_broker_that_is_cut_off_from_zookeeper_loses_its_lease(world: PartageWorld) -> None:
    """Before another broker takes over, it answers no request of a group."""
    answers: list[float] = []

    async def ask() -> None:
        async with AIOKafkaConsumer(
            bootstrap_servers=world.bootstrap_servers,
            group_id="g",
            request_timeout_ms=60_000,
            session_timeout_ms=30_000,
        ) as consumer:
            partition = AiokafkaPartition("t", 0)
            consumer.assign([partition])
            while True:
                await consumer.committed(partition)
                answers.append(world.elapsed_s)
                await asyncio.sleep(0.2)

    async def work() -> None:
        former = await start_group(world, [])
        world.process(ask, name="client")
        await world.until(lambda: len(answers) > 2)
        world.cut(former, world.zookeeper)
        cut_s = world.elapsed_s
        waited_s = await await_takeover(world, former)
        last_s = answers[-1]
        assert last_s < cut_s + SESSION_S
        assert last_s < cut_s + waited_s
        world.heal()
        await world.until(lambda: "registered again" in "".join(world.story))
        await world.until(lambda: answers[-1] > last_s, timeout_s=90)

    run(world, work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()  # finds no connection that aiokafka has left open: later tests would warn
    assert [str(each.message) for each in caught] == []


def test_paused_coordinator_does_not_answer_when_it_continues(world: PartageWorld) -> None:
    """The rule `two_coordinators` fails this world if it does."""
    read: list[bytes] = []

    async def work() -> None:
        former = await start_group(world, read)
        world.pause(former, 30)
        assert await await_takeover(world, former) < SESSION_S + 2 * TAKEOVER_S
        await produce(world, b"b", partition=elsewhere(world, former))
        await world.until(lambda: committed(world) == 2)
        await asyncio.sleep(30)
        assert world.coordinator("g") is not None

    run(world, work)
    assert read == [b"a", b"b"]


@pytest.mark.parametrize("fault", ["cut", "pause"])
def test_broker_knows_that_its_session_was_ended(world: PartageWorld, fault: str) -> None:
    """Otherwise it would answer until the end of its lease, while another one takes over."""
    read: list[bytes] = []

    async def work() -> None:
        former = await start_group(world, read)
        world.expire_session(former)
        if fault == "cut":
            world.cut(former, world.zookeeper, 3)
        else:
            world.pause(former, 1)
        assert await await_takeover(world, former) < SESSION_S
        await asyncio.sleep(10)

    run(world, work)


def test_broker_without_zookeeper_is_started_again(world: PartageWorld) -> None:
    async def work() -> None:
        await world.create_topic("t", partitions=3)
        world.cut("broker-2", world.zookeeper)
        world.kill("broker-2")
        world.restart("broker-2")
        await world.until(
            lambda: any("failed: ClusterJoinError: no ZooKeeper" in line for line in world.story)
        )
        world.heal("broker-2", world.zookeeper)
        await world.until(lambda: "took over" in world.story[-1])

    run(world, work)


def test_topic_that_is_created_while_a_broker_is_down_is_on_it_later(world: PartageWorld) -> None:
    async def work() -> None:
        world.kill("broker-3")
        await asyncio.sleep(SESSION_S + TAKEOVER_S)
        await world.create_topic("t", partitions=2)
        world.restart("broker-3")
        await world.until(world._all_brokers_have_started)
        await produce(world, b"a")
        assert {world.leader("t", number) for number in range(2)} == {"broker-1", "broker-2"}

    run(world, work)


def test_transaction_completes_after_its_coordinator_is_killed(world: PartageWorld) -> None:
    async def work() -> list[bytes]:
        await world.create_topic("t", partitions=3)
        async with AIOKafkaProducer(
            bootstrap_servers=world.bootstrap_servers, transactional_id="x"
        ) as producer:
            coordinator = await producer.client.coordinator_lookup(1, "x")
            killed = f"broker-{coordinator}"
            partition = elsewhere(world, killed)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"a", partition=partition)
            world.kill(killed)
            await producer.commit_transaction()
        async with AIOKafkaConsumer(
            bootstrap_servers=world.bootstrap_servers, isolation_level="read_committed"
        ) as consumer:
            consumer.assign([AiokafkaPartition("t", partition)])
            await consumer.seek_to_beginning()
            return [(await consumer.getone()).value]

    assert run(world, work) == [b"a"]


def test_single_broker_has_no_zookeeper(tmp_path: Path) -> None:
    world = PartageWorld(1, tmp_path)
    with pytest.raises(RuntimeError, match=r"mark\.partage_world\(brokers=3\)"):
        _ = world.zookeeper
    assert world.brokers == ("broker-1",)
    world.close()


@pytest.mark.parametrize("seed", range(1, 4))
def test_cluster_keeps_all_rules_under_faults(seed: int, tmp_path: Path) -> None:
    world = run_cluster_world(seed, tmp_path)
    assert any("expired" in line for line in world.story)
    assert {event.name for event in world.events if event.kind == "killed"} >= {"copier"}


@pytest.mark.parametrize(
    "first",
    [
        *(pytest.param(first, marks=pytest.mark.slow) for first in (4, 14)),
        *(pytest.param(first, marks=pytest.mark.soak) for first in range(24, 104, 10)),
    ],
)
def test_cluster_keeps_all_rules_in_many_worlds(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        run_cluster_world(seed, tmp_path / str(seed))


#: Plants a bug, and prints the error of the first world that finds it. A correct program needs less
#: than 50 s after the last fault. With a bug, each second of the world costs time.
FAULTY_WORLD = """
import sys
from pathlib import Path

import pytest

from partage.testing.world.errors import InvariantError, WaitTimeoutError
from testing.cluster_bugs import BUGS
from testing.cluster_worlds import run_cluster_world

bug = next(each for each in BUGS if each.__name__ == sys.argv[2])
patch = pytest.MonkeyPatch()
for limit in ("_EVENTUALLY_S", "_REJOIN_S"):
    patch.setattr(f"partage.testing.world.world.{limit}", 100.0)
bug(patch)
for seed in range(BUGS[bug], BUGS[bug] + 5):
    try:
        run_cluster_world(seed, Path(sys.argv[1]) / str(seed))
    except (InvariantError, WaitTimeoutError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        break
"""


def error_with_bug(name: str, directory: Path) -> str:
    """Return the error of the first world that finds a planted bug."""
    return output_of(FAULTY_WORLD, directory, name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [bug.__name__ for bug in BUGS])
def test_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    assert "Error: " in error_with_bug(name, tmp_path)


def test_broker_that_acknowledges_too_early_is_found(tmp_path: Path) -> None:
    """The rule names the group, the partition, and both offsets."""
    error = error_with_bug("acknowledges_before_it_stores", tmp_path)
    assert re.match(r"InvariantError: commit_lost: the coordinator of group group-. ackn", error)


def test_broker_that_responds_after_a_takeover_is_found(tmp_path: Path) -> None:
    error = error_with_bug("answers_without_a_lease", tmp_path)
    assert re.match(
        r"InvariantError: two_coordinators: broker-\d responded to \w+ for group [\w-]+ although "
        r"broker-\d had taken over the group",
        error,
    )


STORY = """
import sys
from pathlib import Path

from testing.cluster_worlds import run_cluster_world

world = run_cluster_world(1, Path(sys.argv[1]))
print(*world.story, sep="\\n")
"""


def test_story_of_a_cluster_is_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    def story(hash_seed: str) -> str:
        return output_of(STORY, tmp_path / hash_seed, hash_seed=hash_seed)

    first = story("1")
    assert "took over shards" in first
    assert "copier        INFO aiokafka.consumer" in first
    assert story("2") == first


def output_of(program: str, *arguments: str | Path, hash_seed: str = "random") -> str:
    """Run a Python program with a hash seed, and return its output."""
    tests = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        cwd=tests,
        env={
            **os.environ,
            "PYTHONPATH": f"{tests.parent / 'src'}{os.pathsep}{tests}",
            "PYTHONHASHSEED": hash_seed,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
