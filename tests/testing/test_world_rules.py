"""The rules that each simulated world checks: planted bugs in a user's code, and correct code."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from partage import Consumer
from partage.testing import PartageWorld
from partage.testing.world.errors import InvariantError

COUNT = 20


@pytest.fixture
def world(tmp_path) -> PartageWorld:
    return PartageWorld(1, tmp_path)


async def sell(world):
    async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("orders", b"order %d" % number, partition=number % 2)
            await asyncio.sleep(0.5)


def aiokafka(world, *topics, **options):
    options = {"group_id": "workers", "auto_offset_reset": "earliest", **options}
    options.setdefault("enable_auto_commit", False)
    return AIOKafkaConsumer(*topics, bootstrap_servers=world.bootstrap_servers, **options)


def run(world, *workers, restart_at_s=None, produce=sell, seconds=60):
    """Run one process for each worker; kill and restart the first one at a time."""

    async def scenario():
        await world.create_topic("orders", partitions=2)
        world.process(lambda: produce(world), name="shop")
        for number, worker in enumerate(workers):
            world.process(lambda worker=worker: worker(world), name=f"worker-{number}")
        if restart_at_s is not None:
            await asyncio.sleep(restart_at_s)
            world.kill("worker-0")
            world.restart("worker-0")
        await asyncio.sleep(seconds)

    world.run(scenario)


async def processes_and_commits(world):
    async with aiokafka(world, "orders") as consumer:
        async for record in consumer:
            await asyncio.sleep(0.1)
            world.processed(record)
            await consumer.commit()


async def commits_and_processes(world):
    async with aiokafka(world, "orders") as consumer:
        async for record in consumer:
            await consumer.commit()
            await asyncio.sleep(0.1)
            world.processed(record)


async def commits_one_too_many(world):
    """Without notes: the fetch requests show that the record behind was never read."""
    async with aiokafka(world, "orders") as consumer:
        async for record in consumer:
            partition = TopicPartition(record.topic, record.partition)
            await consumer.commit({partition: record.offset + 2})


async def polls_with_auto_commit(world):
    async with Consumer(
        world.bootstrap_servers, group_id="workers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            await asyncio.sleep(0.1)
            world.processed(record)


async def starts_at_the_end(world):
    async with aiokafka(world, "orders", auto_offset_reset="latest") as consumer:
        async for record in consumer:
            world.processed(record)
            await consumer.commit()


async def reads_again_after_a_restart(world):
    async with aiokafka(world, "orders") as consumer:
        while not consumer.assignment():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await consumer.seek_to_beginning()
        async for record in consumer:
            world.processed(record)
            await consumer.commit()


async def processes_concurrently(world):
    async def process(record):
        await asyncio.sleep(5 if record.offset == 3 else 0.1)
        world.processed(record)

    tasks = set()
    async with aiokafka(world, "orders") as consumer:
        async for record in consumer:
            tasks.add(asyncio.ensure_future(process(record)))


async def commits_without_the_group(world):
    """Two processes read all partitions and commit for the same group."""
    async with aiokafka(world) as consumer:
        consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
        async for _ in consumer:
            await consumer.commit()


class GivesAllToAll(RoundRobinPartitionAssignor):
    name = "all"

    @classmethod
    def assign(cls, cluster, members):
        partitions = [("orders", [0, 1])]
        return {member: ConsumerProtocolMemberAssignment(0, partitions, b"") for member in members}


async def uses_a_wrong_assignor(world):
    options = {"partition_assignment_strategy": [GivesAllToAll]}
    async with aiokafka(world, "orders", **options) as consumer:
        async for _ in consumer:
            pass


async def abort_some(world):
    """Send transactions of two records, and abort every other one."""
    servers = world.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="shop") as producer:
        for number in range(COUNT // 2):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send_and_wait("orders", b"%d" % number, partition=partition)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


async def reads_committed(world):
    async with aiokafka(world, "orders", isolation_level="read_committed") as consumer:
        async for record in consumer:
            world.processed(record)
            await consumer.commit()


@pytest.mark.parametrize(
    ("name", "workers", "options"),
    [
        ("commit_ahead", [commits_and_processes], {}),
        ("commit_ahead", [commits_one_too_many], {}),
        ("lost", [starts_at_the_end], {"restart_at_s": 5}),
        ("duplicate", [reads_again_after_a_restart], {"restart_at_s": 5}),
        ("reordered", [processes_concurrently], {}),
        ("two_owners", [commits_without_the_group] * 2, {}),
        ("two_owners", [uses_a_wrong_assignor] * 2, {}),
        ("aborted_read", [processes_and_commits], {"produce": abort_some}),
    ],
    ids=lambda value: value[0].__name__ if isinstance(value, list) else None,
)
def test_bug_breaks_its_rule(world, name, workers, options):
    with pytest.raises(InvariantError, match=f"^{name}: "):
        run(world, *workers, **options)
    assert any(f"rule {name} is broken" in line for line in world.story)


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        ([processes_and_commits] * 2, {}),
        ([polls_with_auto_commit] * 2, {}),
        ([reads_committed], {"produce": abort_some}),
        ([starts_at_the_end], {}),
    ],
    ids=lambda value: value[0].__name__ if isinstance(value, list) else None,
)
def test_correct_worker_keeps_all_rules(world, workers, options):
    if workers == [starts_at_the_end]:
        world.allow("lost")
    run(world, *workers, restart_at_s=5.2, **options)
    assert not [line for line in world.story if "is broken" in line]


def test_commit_after_seek_over_processed_records_is_not_ahead(world):
    """A process seeks forward and commits before it fetches there."""
    partition = TopicPartition("orders", 0)

    async def processes(world):
        async with aiokafka(world) as consumer:
            consumer.assign([partition])
            for _ in range(COUNT // 2):
                world.processed(await consumer.getone(), group="workers")

    async def seeks_and_commits(world):
        await asyncio.sleep(15)
        async with aiokafka(world, max_partition_fetch_bytes=1) as consumer:
            consumer.assign([partition])
            await consumer.getone()
            consumer.pause(partition)
            consumer.seek(partition, 8)
            await consumer.commit()

    run(world, processes, seeks_and_commits, seconds=20)


def test_repeated_commit_of_another_process_is_not_ahead(world):
    """A member that gets a partition back may commit its position before it fetches again."""
    partition = TopicPartition("orders", 0)

    async def reads_one_and_repeats_the_commit(world):
        async with aiokafka(world) as consumer:
            consumer.assign([partition])
            await consumer.getone()
            await asyncio.sleep(5)
            await consumer.commit({partition: 8})

    async def commits(world):
        async with aiokafka(world) as consumer:
            consumer.assign([partition])
            consumer.pause(partition)
            await asyncio.sleep(3)
            await consumer.commit({partition: 8})

    run(world, reads_one_and_repeats_the_commit, commits, seconds=20)


def test_allowed_rule_may_be_broken(world):
    world.allow("commit_ahead")
    run(world, commits_one_too_many)


def test_unknown_rule_is_an_error(world):
    with pytest.raises(ValueError, match="no rule 'losst'; the rules are commit_ahead, two_owners"):
        world.allow("losst")
    world.close()


def test_processes_of_several_groups_name_theirs(world):
    async def work(world, group):
        async with aiokafka(world, "orders", group_id=group) as consumer:
            async for record in consumer:
                world.processed(record, group=group)
                await consumer.commit()

    run(world, *(lambda world, group=group: work(world, group) for group in ("one", "two")))


@pytest.mark.slow
@pytest.mark.parametrize("worker", [processes_and_commits, polls_with_auto_commit])
def test_correct_worker_keeps_all_rules_under_faults(worker, tmp_path):
    for seed in range(1, 21):
        world = PartageWorld(seed, tmp_path / str(seed))

        async def scenario(world=world):
            names = ["worker-0", "worker-1"]
            await world.create_topic("orders", partitions=2)
            world.process(lambda: sell(world), name="shop", restart_after_s=1)
            for name in names:
                world.process(lambda: worker(world), name=name, restart_after_s=1)
            world.draw_faults(8, within_s=60, targets=[*names, world.broker])
            await asyncio.sleep(120)

        world.run(scenario)
