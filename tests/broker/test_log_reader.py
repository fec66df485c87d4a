"""Reads outside the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.real_disk import RealDisk
from partage.log.errors import DamagedLogError
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Slice
from partage.log.segments.timestamp_lookup import TimestampAndOffset
from partage.model.errors import ErrorCode


def test_timestamp_lookup_does_not_block_loop(tmp_path: Path) -> None:
    """A lookup may scan a whole segment."""

    async def story() -> None:
        disk, may_go_on = RealDisk(tmp_path), threading.Event()

        def search() -> TimestampAndOffset | None:
            assert may_go_on.wait(5), "the event loop was blocked"
            return TimestampAndOffset(3, 7)

        def fails() -> TimestampAndOffset | None:
            raise DamagedLogError("t-0/x.log", 5, "the file does not exist")

        asyncio.get_running_loop().call_soon(may_go_on.set)
        found = await LogReader(disk).look_up_timestamps([search, fails, lambda: None])
        assert found[0] == TimestampAndOffset(3, 7)
        assert isinstance(found[1], DamagedLogError)
        assert found[2] is None
        disk.close()

    asyncio.run(story())


def test_damaged_slice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka repeats the fetch twice a second."""
    disk = MemoryDisk()
    disk.write("x.log", 0, [bytes(200)])
    damaged = Slice(path="x.log", position=0, length=100, base_offset=7, first_size=80)
    other = Slice(path="x.log", position=100, length=100, base_offset=7, first_size=80)

    async def story() -> None:
        reader = LogReader(disk)
        corrupt = [ErrorCode.CORRUPT_MESSAGE]
        assert [reader.read_cached([damaged]) for _ in range(3)] == [corrupt] * 3
        assert reader.read_cached([other]) == corrupt

    asyncio.run(story())
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in texts] == [
        "file x.log is damaged at byte 0",
        "file x.log is damaged at byte 100",
    ]


def test_missing_file_is_a_storage_error() -> None:
    """Clients retry it: the file may be back after a disk was mounted again."""
    missing = Slice(path="none.log", position=0, length=100, base_offset=0, first_size=80)

    async def story() -> None:
        reader = LogReader(MemoryDisk())
        assert reader.read_cached([missing]) == [ErrorCode.KAFKA_STORAGE_ERROR]

    asyncio.run(story())
