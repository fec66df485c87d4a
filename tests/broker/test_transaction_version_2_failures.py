"""A transaction of ``transaction.version`` 2 (KIP-890) whose coordinator dies at each of its steps.

The broker is a process of a simulated world, and is started again soon after its death.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from partage import Consumer, TopicPartition
from partage.broker.coordination.state_store import LocalStore
from partage.broker.transactions.local_markers import LocalMarkers
from partage.model.errors import ErrorCode
from partage.testing import PartageWorld
from partage.wire.apis.find_coordinator import GROUP, TRANSACTION
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from world_connections import connect

from .dying_transaction_coordinator import STEPS, install_death
from .raw_producer import Identity, RawProducer
from .test_transaction_failure_points import CASES, PARTITIONS

pytestmark = pytest.mark.partage_broker(
    {
        "transaction.state.log.num.partitions": 1,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
)

#: Steps of an abort by the coordinator.
ABORT_STEPS = [step for step in STEPS if "the id" not in step and "the first partition" not in step]
RESTART_S = 0.5


class DyingBroker:
    """The broker of a world, which dies once at a step."""

    def __init__(self, world: PartageWorld) -> None:
        self._world = world
        self._has_died = asyncio.Event()
        self._has_restarted = asyncio.Event()

    def die(self, *_: object) -> None:
        self._world.kill(self._world.broker)
        self._has_died.set()

    async def supervise(self, patch: pytest.MonkeyPatch) -> None:
        """Start the broker again, without the patch, after it has died."""
        await self._has_died.wait()
        patch.undo()
        await asyncio.sleep(RESTART_S)
        self._world.restart(self._world.broker)
        await self._world.until(lambda: self._world._brokers.has_started)
        self._has_restarted.set()

    async def check_restarted(self) -> None:
        """Wait until the broker has died and runs again."""
        async with asyncio.timeout(60):
            await self._has_restarted.wait()


@asynccontextmanager
async def dying_broker(world: PartageWorld, step: str) -> AsyncIterator[DyingBroker]:
    """Let the broker of a world with two topics die at a step, and start it again."""
    world.allow("commit_ahead", "torn")  # offsets are committed without reading records
    await world.create_topic("source")
    await world.create_topic("target", len(PARTITIONS))
    broker = DyingBroker(world)
    with pytest.MonkeyPatch.context() as patch:
        for changed in (LocalStore, LocalMarkers):
            patch.setattr(changed, "append", changed.append)  # undone by the supervisor
        install_death(step, broker.die)
        supervisor = asyncio.ensure_future(broker.supervise(patch))
        yield broker
        await supervisor


@pytest.mark.parametrize(("step", "is_commit"), CASES)
async def test_transaction_of_version_2_ends_as_decided_after_kill(
    partage_world: PartageWorld, step: str, is_commit: bool
) -> None:
    """The producer repeats its requests. Each transaction has one epoch, also if it was repeated.

    Late requests of the first transaction do not change the second one.
    """
    world = partage_world
    async with dying_broker(world, step) as broker:
        producer = await producer_of(world)
        # If the id was stored, the repeated InitProducerId gets the next epoch.
        assert producer.identity.epoch == (1 if step == "after the id is stored" else 0)
        first = producer.identity
        await transact(producer, b"1", is_commit=is_commit)
        await broker.check_restarted()
        assert producer.identity == (first.producer_id, first.epoch + 1)
        repeated = await producer.send_end(first, is_commit=is_commit)
        assert not repeated.error_code
        assert (repeated.producer_id, repeated.producer_epoch) == producer.identity
        await write(producer, b"2")
        await check_late_requests(producer, first)
        assert await producer.end(is_commit=True) is ErrorCode.NONE
        await check_end(world, producer, [b"1", b"1", b"2", b"2"] if is_commit else [b"2", b"2"])


@pytest.mark.parametrize("step", ABORT_STEPS)
async def test_successor_fences_producer_although_coordinator_is_killed(
    partage_world: PartageWorld, step: str
) -> None:
    """InitProducerId aborts the open transaction. The broker dies at a step of the abort."""
    world = partage_world
    async with dying_broker(world, step) as broker:
        first = await producer_of(world)
        await write(first, b"1")
        second = RawProducer(world, "writer")
        await second.init()
        await broker.check_restarted()
        # One epoch fences the transaction, and the next one is the successor's.
        assert second.identity == (first.identity.producer_id, first.identity.epoch + 2)
        assert await first.produce("target", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
        await transact(second, b"2", is_commit=True)
        await check_end(world, second, [b"2", b"2"])


@pytest.mark.parametrize("step", ABORT_STEPS)
async def test_timed_out_transaction_is_aborted_although_coordinator_is_killed(
    partage_world: PartageWorld, step: str
) -> None:
    """The broker dies at a step of the abort, which no request waits for."""
    world = partage_world
    async with dying_broker(world, step) as broker:
        producer = await producer_of(world, timeout_ms=3_000)
        await write(producer, b"1")
        await broker.check_restarted()
        await world.until(lambda: has_state(world, "CompleteAbort"))
        assert await producer.produce("target", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(is_commit=True) is ErrorCode.INVALID_TXN_STATE
        await producer.init()
        await transact(producer, b"2", is_commit=True)
        await check_end(world, producer, [b"2", b"2"])


async def producer_of(world: PartageWorld, timeout_ms: int = 60_000) -> RawProducer:
    """Return an initialized producer with a transaction timeout."""
    producer = RawProducer(world, "writer")
    await producer.find_coordinator(GROUP, "g")
    await producer.find_coordinator(TRANSACTION, "writer")
    await producer.init(timeout_ms)
    return producer


async def write(producer: RawProducer, value: bytes) -> None:
    """Write a value to each partition, and commit its offset + 1, in the open transaction."""
    for partition in PARTITIONS:
        assert await producer.produce("target", partition, value) is ErrorCode.NONE
    assert await producer.commit_offset("g", "source", int(value)) is ErrorCode.NONE


async def transact(producer: RawProducer, value: bytes, *, is_commit: bool) -> None:
    await write(producer, value)
    assert await producer.end(is_commit=is_commit) is ErrorCode.NONE


async def check_late_requests(producer: RawProducer, identity: Identity) -> None:
    """Check that no request of an earlier transaction changes the open one."""
    late = producer.copy(identity)
    assert await late.produce("target", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await late.commit_offset("g", "source", 9) is ErrorCode.INVALID_PRODUCER_EPOCH
    for is_commit in (True, False):
        assert await late.end(is_commit=is_commit) is ErrorCode.PRODUCER_FENCED


async def check_end(world: PartageWorld, producer: RawProducer, expected: list[bytes]) -> None:
    """Check the committed records and offset, and that the last transaction was committed."""
    assert await committed_values(world, len(expected)) == expected
    assert await committed_offset(producer) == 2
    await world.until(lambda: has_state(world, "CompleteCommit"))


async def committed_values(world: PartageWorld, count: int) -> list[bytes]:
    """Read both partitions to their ends, in order of the values; at least ``count`` records."""
    partitions = [TopicPartition("target", each) for each in PARTITIONS]
    found: list[bytes] = []
    async with Consumer(
        world.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)

        async def is_at_end() -> bool:
            found.extend([r.value for r in await consumer.poll(100) if r.value is not None])
            ends = await consumer.end_offsets(partitions)
            positions = {each: await consumer.position(each) for each in partitions}
            return len(found) >= count and positions == ends

        await world.until(is_at_end)
    return sorted(found)


async def committed_offset(producer: RawProducer) -> int:
    """Return the position of the group once no transaction holds it back."""
    topic = OffsetFetchTopic(name="source", partition_indexes=[0])
    groups = [OffsetFetchGroup(group_id="g", topics=[topic])]
    request = OffsetFetchRequest(groups=groups, require_stable=True)
    response = await producer.repeat(
        OFFSET_FETCH,
        request,
        OFFSET_FETCH.by_name_max,
        lambda found: found.groups[0].topics[0].partitions[0].error_code,
    )
    return response.groups[0].topics[0].partitions[0].committed_offset


async def has_state(world: PartageWorld, state: str) -> bool:
    """True if the only transactional id has this state."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    connection = await connect(world.broker)
    response = await connection.send(LIST_TRANSACTIONS, request)
    connection.close()
    states = {each.transactional_id: each.transaction_state for each in response.transaction_states}
    return states == {"writer": state}
