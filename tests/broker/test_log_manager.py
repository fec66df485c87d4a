"""Changes of topics on a full disk: nothing changes, and the broker continues."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from partage.broker.broker import Broker
from partage.broker.topics.log_manager import LocalTopic
from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Buffer
from partage.log.layout import CATALOGUE_FILE
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings

SETTINGS = BrokerSettings(offsets_partitions=1)


class FullDisk(RealDisk):
    """A disk without space for a new catalogue file while it is full."""

    is_full = False

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        if self.is_full and path.startswith(CATALOGUE_FILE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(path, position, chunks)


def edited(configs: dict[str, str]) -> None:
    configs["retention.ms"] = "5"


async def changed(broker: Broker) -> list[LocalTopic | Refusal | None]:
    """Try each kind of topic change."""
    hosted = broker.log_manager
    return [
        await hosted.create("new", 2, {}),
        await hosted.add_partitions("t", 3),
        await hosted.alter_configs("t", edited, validate_only=False),
    ]


def test_topic_change_on_full_disk_is_rolled_back(tmp_path: Path) -> None:
    async def story() -> None:
        disk = FullDisk(tmp_path)
        broker = await Broker.start(disk, SETTINGS, host="127.0.0.1", port=0)
        await broker.log_manager.create("t", 1, {})
        disk.is_full = True
        for outcome in await changed(broker):
            assert isinstance(outcome, Refusal)
            assert outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in outcome.message
        assert not broker._fatal.done()
        topic = broker.log_manager.topic("t")
        assert topic is not None
        assert (len(topic.partitions), dict(topic.topic.configs)) == (1, {})
        assert broker.log_manager.topic("new") is None
        disk.is_full = False
        for outcome in await changed(broker):
            assert not isinstance(outcome, Refusal)
        assert (len(topic.partitions), dict(topic.topic.configs)) == (3, {"retention.ms": "5"})
        await broker.stop()
        disk.close()

    asyncio.run(story())


def test_open_new_directory_on_full_disk_raises(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(Broker.start(disk, SETTINGS, host="127.0.0.1", port=0))
    disk.close()
