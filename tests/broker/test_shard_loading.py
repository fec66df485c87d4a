"""A broker serves all other requests while its groups are being loaded."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from partage.broker.broker import Broker
from partage.broker.coordination.state_store import LocalStore
from partage.broker.topics.log_manager import LocalTopic
from partage.broker.topics.real_disk import RealDisk
from partage.coordinator.records import OffsetRecord
from partage.log.results import Slice
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.store.shard_log import encode_records
from partage.wire.types import Buffer

SETTINGS = BrokerSettings(offsets_partitions=40)  # more than any pool has threads


def test_shard_loading_leaves_threads_for_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()
    read = LocalStore.read

    def slow(self: LocalStore, slices: list[Slice]) -> list[Buffer]:
        assert may_load.wait(20)
        return read(self, slices)

    async def story() -> None:
        disk = RealDisk(tmp_path)
        broker = await Broker.start(disk, SETTINGS, host="127.0.0.1", port=0)
        offsets = broker.log_manager.topic("__consumer_offsets")
        assert offsets is not None
        commit = OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=1)
        (batch,) = encode_records([commit], at_ms=1)
        for partition in offsets.partitions.values():
            told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            partition.append(batch, told.set_result, at_ms=1, from_client=False)
            assert await told is ErrorCode.NONE
        await broker.stop()
        monkeypatch.setattr(LocalStore, "read", slow)
        broker = await Broker.start(disk, SETTINGS, host="127.0.0.1", port=0)
        made = await asyncio.wait_for(broker.log_manager.create("t", 1, {}), 10)
        assert isinstance(made, LocalTopic)
        may_load.set()
        await asyncio.wait_for(broker.wait_loaded(), 20)
        await broker.stop()
        disk.close()

    asyncio.run(story())
