"""The log of a shard in a local partition: batches of events, and damage."""

from __future__ import annotations

import asyncio

import pytest

from partage.broker.clock import Clock
from partage.broker.coordination.state_store import LocalStore
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.coordinator.records import GroupTombstone
from partage.log.errors import DamagedLogError
from partage.log.memory_disk import MemoryDisk
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.store.shard_log import encode_records
from partage.wire.records.batch import whole_batches
from store.group_conversions import NOW_MS, conversions, state_of, states


def test_crash_keeps_whole_conversions() -> None:
    """The log of the partition is cut after each batch."""

    async def story() -> None:
        for conversion in conversions(100, 6_000):
            store = await opened(MemoryDisk())
            stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            before = len(conversion.earlier)
            store.append(
                [*conversion.earlier, *conversion.records],
                NOW_MS,
                stored.set_result,
                [before, *(before + end for end in conversion.event_ends)],
            )
            assert await stored is ErrorCode.NONE
            (content,) = store.read(store.slices())
            ends = [at + header.size for at, header in whole_batches(memoryview(content))]
            assert len(ends) == 3
            old, new = states(conversion)
            found = [state_of([bytes(content[:end])]) for end in ends]
            assert found == [old, new, new]

    asyncio.run(story())


def raise_failure(error: BaseException) -> None:
    raise error


async def opened(disk: MemoryDisk) -> LocalStore:
    """Return the store of an empty shard."""
    writer = LogWriter(disk, sync=False, inline=True)
    hosted = LogManager(disk, writer, Clock(), BrokerSettings(offsets_partitions=1), raise_failure)
    await hosted.open()
    return LocalStore(hosted, disk, 0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_read_damaged_log_reports_file_and_position(place: int) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        store = await opened(disk)
        (batch,) = encode_records([GroupTombstone(group_id="g")], at_ms=1)
        for _ in range(3):
            told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            store.partition().append(batch, told.set_result, at_ms=1, from_client=False)
            assert await told is ErrorCode.NONE
        slices = store.slices()
        assert [len(content) for content in store.read(slices)] == [3 * len(batch)]
        path, position = slices[0].path, place * len(batch)
        disk.write(path, position + 70, [b"?"])
        with pytest.raises(DamagedLogError) as caught:
            store.read(slices)
        assert (caught.value.path, caught.value.position) == (path, position)
        assert f"partage log cut {path} --at {position}" in str(caught.value)

    asyncio.run(story())
