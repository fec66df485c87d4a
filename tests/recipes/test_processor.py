"""Processors: co-partitioned tasks, no lost records, and duplicates only after losses."""

from __future__ import annotations

import asyncio
import threading

import pytest

from client.confluent_admin import create_topic, delete_topic, produce
from partage import ConsumerConfig, TopicPartition
from partage.client.cluster import Cluster
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.offsets import fetch_committed
from partage.errors import AssignmentFailedError, UnknownTopicError
from partage.recipes import CoPartitioningError, Processor, ProcessorConfig, Task
from partage.recipes.sync import Processor as BlockingProcessor

from .external_broker import empty_broker, fresh_topic
from .processor_runner import (
    JOINED,
    NUMBERS,
    OTHER,
    OTHERS,
    Journal,
    Noted,
    Worker,
    fill,
    topics,
    until,
)
from .settings import QUICK_READER, run

pytestmark = pytest.mark.timeout(600)
ALL = NUMBERS + OTHERS


@pytest.fixture
def servers(request):
    with empty_broker(request) as servers:
        topics(servers)
        yield servers


@pytest.fixture
def journal():
    return Journal()


@pytest.fixture(params=["asyncio", "blocking"])
def worker_of(request, servers, journal):
    """Create workers of one kind; stop them after the test."""
    workers = []

    def make(name, **options):
        workers.append(Worker(request.param, servers, journal, name, **options))
        return workers[-1]

    yield make
    for worker in workers:
        worker.__exit__()


def shared(*workers):
    """True if each task has one worker and both kinds are evenly distributed."""
    held = [task for worker in workers for task in worker.tasks]
    kinds = [[len(task.topics) for task in worker.tasks] for worker in workers]
    even = all(max(its) - min(its) <= 1 for its in ([k.count(n) for k in kinds] for n in (1, 2)))
    return even and len(held) == len(set(held)) == ALL


def offsets(servers, group):
    async def asked():
        async with Cluster(servers) as cluster:
            everything = [TopicPartition(topic, n) for topic in JOINED for n in range(NUMBERS)]
            everything += [TopicPartition(OTHER, n) for n in range(OTHERS)]
            coordinator = CoordinatorClient(cluster, group)
            found = await fetch_committed(coordinator, group, everything)
            coordinator.disconnect()
            return [found[p].offset if p in found else 0 for p in everything]

    return run(asked())


def test_partition_numbers_stay_co_partitioned(worker_of, servers, journal):
    written = fill(servers)
    one = worker_of("one")
    until(lambda: journal.count() == written, one)
    two = worker_of("two")
    until(lambda: shared(one, two), one, two)
    written += fill(servers)
    until(lambda: journal.count() == written, one, two)
    three = worker_of("three")
    until(lambda: shared(one, two, three), one, two, three)
    written += fill(servers)
    until(lambda: journal.count() == written, one, two, three)
    assert one.stop() is None
    until(lambda: shared(two, three), two, three)
    written += fill(servers)
    until(lambda: journal.count() == written, two, three)

    assert journal.doubles() == []
    assert journal.twice == []
    for number in range(NUMBERS):
        both = journal.owners(JOINED, number)
        assert len(both) == len(set(both))  # a worker that gave it up never had it again
        # Each topic was read by the same workers, except by those that found no records in it.
        for topic in JOINED:
            assert set(journal.owners([topic], number)) == set(both)
    assert two.stop() is None
    assert three.stop() is None
    assert offsets(servers, journal.group) == [80] * (2 * NUMBERS + OTHERS)
    assert journal.open == {}


def test_member_changes_cause_no_duplicates(worker_of, servers, journal):
    written, is_over = [fill(servers, 5)], threading.Event()

    def keep_writing():
        while not is_over.is_set():
            written[0] += fill(servers, 1)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        one = worker_of("one")
        until(lambda: shared(one), one)
        two = worker_of("two")
        until(lambda: shared(one, two), one, two)
        assert one.stop() is None
        until(lambda: shared(two), two)
        three = worker_of("three")
        until(lambda: shared(two, three), two, three)
    finally:
        is_over.set()
        writer.join()
    until(lambda: journal.count() == written[0], two, three)
    assert journal.doubles() == []
    assert journal.twice == []


def test_expired_worker_loses_tasks_not_records(worker_of, servers, journal, partage_broker):
    one, two = worker_of("one"), worker_of("two")
    until(lambda: shared(one, two), one, two)
    written = fill(servers)
    until(lambda: journal.count() == written, one, two)
    partage_broker.faults.expire(journal.group, client_id="one")
    written += fill(servers)
    until(lambda: journal.count() == written and shared(one, two), one, two)
    steps = [what for what, worker, _ in journal.steps if worker == "one"]
    assert steps.count("close") >= ALL // 2


class Failing(Noted):
    """A task that fails once, at a record in the middle of partition 3 of the joined topics."""

    is_over = False

    def process(self, record):
        where = record.topic, record.partition, record.offset
        if not Failing.is_over and where == ("orders", 3, 5):
            Failing.is_over = True
            raise LookupError("order 5")
        super().process(record)


def test_task_error_ends_run_and_record_returns(worker_of, servers, journal):
    Failing.is_over = False
    written = fill(servers)
    one = worker_of("one", kind=Failing, commit_interval_ms=60_000)
    error = one.ended()
    assert isinstance(error, LookupError)
    assert ("orders", 3, 5) not in journal.read
    failed = [task for what, _, task in journal.steps if what == "flush" and task.partition == 3]
    assert all(len(task.topics) == 1 for task in failed)  # its changes must not be made durable
    assert journal.open == {}
    before = offsets(servers, journal.group)
    assert before[3] == before[NUMBERS + 3] == 0
    two = worker_of("two", kind=Failing)
    until(lambda: journal.count() == written, two)
    assert set(journal.doubles()) <= {(t, 3, n) for t in JOINED for n in range(20)}


def test_run_after_task_failure_raises(servers):
    async def main():
        fill(servers)
        journal = Journal()
        Failing.is_over = False

        def made(task_id):
            return Failing(journal, "one", task_id)

        async with Processor(servers, "again", made, joined=JOINED) as processor:
            with pytest.raises(LookupError):
                await processor.run()
            with pytest.raises(RuntimeError, match=r"clicks\+orders-3 has failed"):
                await processor.run()

    run(main())


def test_partition_lost_before_callback_is_ignored(servers):
    half = [TopicPartition("clicks", 0)]
    with BlockingProcessor(servers, "late", Noted, joined=JOINED, **QUICK_READER) as processor:
        processor.on_assigned(half)  # the partition to pause is no longer assigned
        processor.on_lost(half)

    async def awaited():
        async with Processor(servers, "late", Noted, joined=JOINED, **QUICK_READER) as processor:
            processor.on_assigned(half)
            await processor.on_lost(half)

    run(awaited())


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_run_after_failed_task_creation_raises(servers, face):
    """Its partitions are paused: another run would wait for them silently."""
    is_over = []

    class Unmade(Noted):
        def __init__(self, task_id):
            if not is_over:
                is_over.append(task_id)
                raise LookupError("no table yet")

    async def awaited():
        async with Processor(servers, "unmade", Unmade, joined=JOINED, **QUICK_READER) as processor:
            with pytest.raises(LookupError) as raised:
                await processor.run()
            with pytest.raises(
                RuntimeError, match=r"could not be created \(LookupError\('no table"
            ):
                await processor.run()
        return raised

    if face == "asyncio":
        raised = run(awaited())
    else:
        with BlockingProcessor(
            servers, "unmade", Unmade, joined=JOINED, **QUICK_READER
        ) as processor:
            with pytest.raises(LookupError) as raised:
                processor.run()
            with pytest.raises(
                RuntimeError, match=r"could not be created \(LookupError\('no table"
            ):
                processor.run()
    assert raised.value.__notes__ == ["while creating task clicks+orders-0"]


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_run_after_interrupted_run_raises(servers, face):
    produce(servers, "clicks", [{"value": b"x", "partition": 0}] * 10)
    read = []

    class CutShort(Task):
        def __init__(self, task_id):
            pass

        def process(self, record):
            if len(read) == 3:
                raise KeyboardInterrupt if face == "blocking" else asyncio.CancelledError
            read.append(record.offset)

    class Whole(CutShort):
        def process(self, record):
            read.append(record.offset)

    def processor(task):
        kind = Processor if face == "asyncio" else BlockingProcessor
        return kind(servers, "cut", task, joined=JOINED, **QUICK_READER)

    async def awaited():
        async with processor(CutShort) as cut:
            with pytest.raises(asyncio.CancelledError):
                await cut.run()
            with pytest.raises(RuntimeError, match="interrupted"):
                await cut.run()

    if face == "asyncio":
        run(awaited())
    else:
        with processor(CutShort) as cut:
            with pytest.raises(KeyboardInterrupt):
                cut.run()
            with pytest.raises(RuntimeError, match="interrupted"):
                cut.run()
    with BlockingProcessor(servers, "cut", Whole, joined=JOINED, **QUICK_READER) as next_one:
        runs = threading.Thread(target=next_one.run)
        runs.start()
        until(lambda: len(read) >= 10)
        next_one.stop()
        runs.join(30)
    assert read == list(range(10))


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_stop_before_run_returns_at_once(servers, face):
    arguments = {"joined": JOINED, **QUICK_READER}

    async def awaited():
        async with Processor(servers, "stopped", Noted, **arguments) as processor:
            processor.stop()
            await processor.run()

    if face == "asyncio":
        run(awaited())
    else:
        with BlockingProcessor(servers, "stopped", Noted, **arguments) as processor:
            processor.stop()
            processor.run()


def test_different_partition_counts_raise(worker_of, servers):
    fresh_topic(servers, "returns", NUMBERS + 1)
    error = worker_of("one", joined=["orders", "returns"]).ended()
    assert isinstance(error, CoPartitioningError)
    assert "orders has 6, returns has 7" in str(error)
    error = worker_of("one", joined=["orders", "order"], unknown_topic_wait_ms=300).ended()
    assert isinstance(error, UnknownTopicError)
    assert "orders" in str(error)


def test_recreated_topic_with_other_count_raises(worker_of, servers, journal):
    one = worker_of("one", metadata_max_age_ms=200)
    until(lambda: shared(one), one)
    delete_topic(servers, "orders")
    create_topic(servers, "orders", NUMBERS + 2)
    error = one.ended()
    assert isinstance(error, CoPartitioningError)
    assert "clicks has 6, orders has 8" in str(error)
    assert journal.open == {}


def test_different_joined_topics_raise(worker_of, servers):
    one = worker_of("one")
    until(lambda: shared(one), one)
    fresh_topic(servers, "returns", NUMBERS)
    two = worker_of("two", joined=["orders", "returns"], topics=())
    errors = [one.ended(), two.ended()]
    assert any(isinstance(error, AssignmentFailedError) for error in errors)
    assert any("same joined topics" in str(error) for error in errors)


RESERVED = ConsumerConfig.__annotations__.keys() - ProcessorConfig.__annotations__.keys()


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_consumer_protocol_is_refused_with_reason(protocol):
    with pytest.raises(TypeError, match="keeps joined topics together"):
        Processor("127.0.0.1:1", "joiner", Noted, joined=JOINED, group_protocol=protocol)


@pytest.mark.parametrize("kind", [Processor, BlockingProcessor])
@pytest.mark.parametrize("option", sorted(RESERVED - {"group_id"}))
def test_invalid_arguments_raise(partage_broker, kind, option):
    servers = partage_broker.bootstrap_servers
    with pytest.raises(TypeError, match=f"does not accept {option}"):
        kind(servers, "joiner", Noted, joined=JOINED, **{option: 1})
    with pytest.raises(ValueError, match="commit_interval_ms"):
        kind(servers, "joiner", Noted, joined=JOINED, commit_interval_ms=-1)


def test_sync_processor_rejects_coroutine_functions(partage_broker, journal):
    servers = partage_broker.bootstrap_servers
    topics(servers)

    class Awaited(Noted):
        async def process(self, record):
            pass

    fill(servers, 1)
    with Worker("blocking", servers, journal, "one", kind=Awaited) as one:
        error = one.ended()
    assert isinstance(error, TypeError)
    assert "coroutine functions" in str(error)
