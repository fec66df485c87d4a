"""Reads outside the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.real_disk import RealDisk
from partage.log.errors import DamagedLogError
from partage.log.segments.timestamp_lookup import TimestampAndOffset


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
