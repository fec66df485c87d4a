"""Markers and stable offsets of a partition on a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from partage.broker.broker import Broker
from partage.broker.topics.partition import Partition
from partage.log.memory_disk import MemoryDisk
from partage.log.producer_state import VerificationGuard
from partage.log.results import AppendResult, Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.wire.records.encoder import SimpleRecord, encode_batch

NOW_MS = 1_700_000_000_000


def run(story: Callable[[Partition], Coroutine[object, object, None]]) -> None:
    """Run a story with one partition of a broker in memory."""

    async def running() -> None:
        settings = BrokerSettings(offsets_partitions=1)
        broker = await Broker.start(MemoryDisk(), settings, host="127.0.0.1", port=0)
        await broker.log_manager.create("t", 1, {})
        partition = broker.log_manager.partition("t", 0)
        assert partition is not None
        await story(partition)
        await broker.stop()

    asyncio.run(running())


def transactional(sequence: int = 0, *, is_transactional: bool = True) -> bytes:
    return encode_batch(
        [SimpleRecord(None, b"value", timestamp_ms=NOW_MS)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


async def append(partition: Partition, payload: bytes, guard: object = None) -> None:
    """Append a batch and wait until it is durable."""
    durable = asyncio.get_running_loop().create_future()
    assert guard is None or isinstance(guard, VerificationGuard)
    outcome = partition.append(payload, durable.set_result, at_ms=NOW_MS, guard=guard)
    assert isinstance(outcome, AppendResult), outcome
    assert await durable is ErrorCode.NONE


def begin(partition: Partition) -> object:
    return partition.log.producer_state.start_verification(
        1, 0, 0, raises_epochs=False, at_ms=NOW_MS
    )


async def mark(partition: Partition) -> None:
    """Append a marker and wait until it is durable."""
    durable = asyncio.get_running_loop().create_future()
    outcome = append_marker(partition, durable.set_result)
    assert isinstance(outcome, AppendResult), outcome
    assert await durable is ErrorCode.NONE


def append_marker(
    partition: Partition, done: Callable[[ErrorCode], None], coordinator_epoch: int = 0
) -> AppendResult | Refusal:
    return partition.append_marker(
        1, 0, coordinator_epoch, is_commit=True, transaction_version=0, at_ms=NOW_MS, done=done
    )


class ByteCounter:
    """A listener that counts the bytes it is told about."""

    def __init__(self) -> None:
        self.changes: list[int] = []

    def on_partition_changed(self, byte_count: int) -> None:
        self.changes.append(byte_count)


def test_durable_marker_ends_the_transaction() -> None:
    async def story(partition: Partition) -> None:
        await append(partition, transactional(), begin(partition))
        assert partition.log.last_stable_offset == 0
        await mark(partition)
        assert partition.log.last_stable_offset == 2

    run(story)


def test_refused_marker_does_not_call_back() -> None:
    async def story(partition: Partition) -> None:
        done: list[ErrorCode] = []
        append_marker(partition, done.append, coordinator_epoch=3)
        refused = append_marker(partition, done.append, coordinator_epoch=2)
        assert isinstance(refused, Refusal)
        assert refused.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await mark_after(partition, 3)
        assert done == [ErrorCode.NONE]

    async def mark_after(partition: Partition, epoch: int) -> None:
        durable = asyncio.get_running_loop().create_future()
        append_marker(partition, durable.set_result, coordinator_epoch=epoch)
        await durable

    run(story)


def test_marker_on_offline_partition_is_refused() -> None:
    async def story(partition: Partition) -> None:
        partition.fail(OSError("the disk is full"))
        refused = append_marker(partition, lambda error: None)
        assert isinstance(refused, Refusal)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(story)


def test_marker_on_deleted_partition_is_refused() -> None:
    async def story(partition: Partition) -> None:
        await partition.retire()
        refused = append_marker(partition, lambda error: None)
        assert isinstance(refused, Refusal)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


def test_marker_that_cannot_be_written_reports_the_error() -> None:
    async def story(partition: Partition) -> None:
        durable = asyncio.get_running_loop().create_future()
        append_marker(partition, durable.set_result)
        partition.fail(OSError("the disk is full"))
        assert await durable is ErrorCode.KAFKA_STORAGE_ERROR

    run(story)


def test_stable_listener_hears_of_bytes_when_the_stable_offset_moves() -> None:
    async def story(partition: Partition) -> None:
        stable, every = ByteCounter(), ByteCounter()
        partition.add_listener(stable, only_stable=True)
        partition.add_listener(every)
        plain = transactional(is_transactional=False)
        await append(partition, plain)
        assert stable.changes == every.changes == [len(plain)]
        guard = partition.log.producer_state.start_verification(
            1, 0, 1, raises_epochs=False, at_ms=NOW_MS
        )
        data = transactional(1)
        await append(partition, data, guard)
        assert stable.changes == [len(plain)]
        await mark(partition)
        marker_size = every.changes[-1]
        assert every.changes == [len(plain), len(data), marker_size]
        assert stable.changes == [len(plain), len(data) + marker_size]
        partition.fail(OSError("the disk is full"))
        assert stable.changes[-1] == 0
        partition.remove_listener(stable)
        partition.remove_listener(every)
        assert partition.listener_count == 0

    run(story)
