"""Retention and compaction, concurrent with other work on the same files."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from partage.broker.broker import Broker
from partage.broker.topics.partition import Partition
from partage.broker.topics.real_disk import RealDisk
from partage.log.checkpoints import CheckpointFile
from partage.log.disk import Buffer
from partage.log.layout import CHECKPOINT_FILE, CLEANED_SUFFIX
from partage.log.results import DurableStep
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import SimpleRecord, encode_batch

SETTINGS = BrokerSettings(offsets_partitions=1)
COMPACTED = {"cleanup_policy": "compact", "segment_ms": "1", "min_cleanable_dirty_ratio": "0"}
FIRST = "t-0/00000000000000000000.log"


class PausingDisk(RealDisk):
    """A disk that pauses a compaction: while it reads the log, or when it writes the remaining
    records.
    """

    def __init__(self, root: Path, *, in_reading: bool = False) -> None:
        super().__init__(root)
        self.has_paused = threading.Event()
        self.may_go_on = threading.Event()
        self._in_reading = in_reading

    def read(self, path: str, position: int, length: int) -> bytes:
        if self._in_reading and path == FIRST:
            self._pause()
        return super().read(path, position, length)

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        if not self._in_reading and path.endswith(CLEANED_SUFFIX):
            self._pause()
        super().write(path, position, chunks)

    def _pause(self) -> None:
        self.has_paused.set()
        assert self.may_go_on.wait(20)


class Running:
    """A broker on its disk, with short forms of requests."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.hosted = broker.log_manager
        self.at_ms = broker._clock.now_ms() - 1_000_000

    async def create(self, **configs: str) -> None:
        """Create the topic; in config names write ``_`` for ``.``."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await self.hosted.create("t", 1, named)

    @property
    def partition(self) -> Partition:
        found = self.hosted.partition("t", 0)
        assert found is not None
        return found

    async def produce(self, *values: bytes) -> None:
        """Append one batch per value; with segments of one millisecond, each is a segment."""
        for value in values:
            self.at_ms += 10
            told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            batch = encode_batch([SimpleRecord(b"key", value, timestamp_ms=self.at_ms)])
            self.partition.append(batch, told.set_result, at_ms=self.at_ms)
            assert await told is ErrorCode.NONE

    def values(self) -> list[bytes | None]:
        slices = self.partition.log.locate(0, 1 << 20)
        assert isinstance(slices, list), slices
        blobs = [self.broker._disk.read(p.path, p.position, p.length) for p in slices]
        return [record[3] for blob in blobs for record in decode_records(blob)]

    async def paused_round(self, disk: PausingDisk) -> asyncio.Task[None]:
        """Start a maintenance run that has begun to compact."""
        begun = asyncio.create_task(self.broker._maintenance.clean_once())
        assert await asyncio.to_thread(disk.has_paused.wait, 20)
        return begun


async def running(disk: RealDisk) -> Running:
    return Running(await Broker.start(disk, SETTINGS, host="127.0.0.1", port=0))


async def stopped(disk: RealDisk, run: Running) -> None:
    await run.broker.stop()
    disk.close()


async def while_paused(disk: PausingDisk, work: Coroutine[Any, Any, Any]) -> None:
    """Start work and give it a tenth of a second; work that waits for the pause does not end."""
    task = asyncio.create_task(work)
    await asyncio.wait({task}, timeout=0.1)
    disk.may_go_on.set()
    await asyncio.wait_for(task, 20)


def test_delayed_removal_spares_recreated_topic(tmp_path: Path) -> None:
    async def story() -> None:
        disk = RealDisk(tmp_path)
        run = await running(disk)
        await run.create(retention_ms="0", file_delete_delay_ms="200")
        await run.produce(b"old")
        keeping = run.broker._maintenance
        before = set(keeping._tasks)
        await keeping.check_retention_once()
        (removal,) = keeping._tasks - before
        await run.hosted.delete("t")
        await run.create()
        await run.produce(b"new")
        assert not removal.done()
        await asyncio.wait_for(removal, 20)
        assert run.values() == [b"new"]
        await stopped(disk, run)

    asyncio.run(story())


def test_delayed_removal_removes_files(tmp_path: Path) -> None:
    async def story() -> None:
        disk = RealDisk(tmp_path)
        run = await running(disk)
        await run.create(retention_ms="0", file_delete_delay_ms="0")
        await run.produce(b"old")
        keeping = run.broker._maintenance
        before = set(keeping._tasks)
        await keeping.check_retention_once()
        await asyncio.gather(*keeping._tasks - before)
        assert not (tmp_path / FIRST).exists()
        await stopped(disk, run)

    asyncio.run(story())


def test_delete_during_compaction_spares_recreated_topic(tmp_path: Path) -> None:
    async def story() -> None:
        disk = PausingDisk(tmp_path)
        run = await running(disk)
        await run.create(**COMPACTED)
        await run.produce(b"old 0", b"old 1", b"old 2")
        begun = await run.paused_round(disk)

        async def recreate() -> None:
            await run.hosted.delete("t")
            await run.create(**COMPACTED)
            await run.produce(b"new")

        await while_paused(disk, recreate())
        await asyncio.wait_for(begun, 20)
        assert run.values() == [b"new"]
        await stopped(disk, run)

    asyncio.run(story())


def test_reopen_during_compaction_cancels_it(tmp_path: Path) -> None:
    async def story() -> None:
        disk = PausingDisk(tmp_path)
        run = await running(disk)
        await run.create(**COMPACTED)
        await run.produce(b"0", b"1", b"2")
        begun = await run.paused_round(disk)
        before = run.partition
        await while_paused(disk, run.hosted.reopen("t", 0))
        await asyncio.wait_for(begun, 20)
        assert run.partition is not before
        assert run.values() == [b"1", b"2"], (
            "the last of the closed segments', and the active one's"
        )
        await stopped(disk, run)

    asyncio.run(story())


class NotRenamingDisk(RealDisk):
    """A disk that fails to rename the second file of a compaction, once."""

    renamed = 0

    def rename(self, old: str, new: str) -> None:
        if old.endswith(CLEANED_SUFFIX):
            self.renamed += 1
            if self.renamed == 2:
                raise OSError(errno.EIO, "it keeps its name", old)
        super().rename(old, new)


def test_failed_compaction_waits_for_retention_check(tmp_path: Path) -> None:
    """A damaged segment must not be read again every 15 s."""

    async def story() -> None:
        disk = RealDisk(tmp_path)
        run = await running(disk)
        await run.create(**COMPACTED)
        await run.produce(b"0", b"1", b"2")
        (tmp_path / FIRST).write_bytes(bytes((tmp_path / FIRST).stat().st_size))
        maintenance, attempts = run.broker._maintenance, list[Partition]()
        compact = maintenance._compact

        async def counted(partition: Partition) -> None:
            if partition is run.partition:
                attempts.append(partition)
            await compact(partition)

        maintenance._compact = counted  # type: ignore[method-assign]
        await maintenance.clean_once()
        await maintenance.clean_once()
        assert len(attempts) == 1
        await maintenance.check_retention_once()
        await maintenance.clean_once()
        assert len(attempts) == 2
        await stopped(disk, run)

    asyncio.run(story())


def test_interrupted_swap_is_finished_on_reopen(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        disk = NotRenamingDisk(tmp_path)
        run = await running(disk)
        await run.create(**COMPACTED)
        await run.produce(b"0", b"1", b"2")
        await run.broker._maintenance.clean_once()
        assert run.partition.failure is not None
        await run.hosted.reopen("t", 0)
        assert run.values() == [b"1", b"2"]
        await run.broker._maintenance.clean_once()
        await run.produce(b"3")
        assert run.values()[-1] == b"3"
        await stopped(disk, run)

    asyncio.run(story())


def test_stop_cancels_compaction(tmp_path: Path) -> None:
    async def story() -> None:
        disk = PausingDisk(tmp_path, in_reading=True)
        run = await running(disk)
        await run.create(**COMPACTED)
        await run.produce(b"0", b"1", b"2")
        begun = await run.paused_round(disk)
        await while_paused(disk, run.broker.stop())
        assert begun.done()
        disk.close()
        again = RealDisk(tmp_path)
        run = await running(again)
        assert run.values() == [b"0", b"1", b"2"]
        await stopped(again, run)

    asyncio.run(story())


def test_concurrent_delete_records_later_one_is_kept(tmp_path: Path) -> None:
    class Slow(RealDisk):
        """A disk that delays the first checkpoint."""

        is_next = False
        has_paused, may_go_on = threading.Event(), threading.Event()

        def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
            in_writer = threading.current_thread().name == "partage-writer"
            if path == CHECKPOINT_FILE and self.is_next and not in_writer:
                self.is_next = False
                self.has_paused.set()
                assert self.may_go_on.wait(20)
            super().write(path, position, chunks)

    async def story() -> None:
        disk = Slow(tmp_path)
        run = await running(disk)
        await run.create()
        await run.produce(b"0", b"1", b"2", b"3")
        disk.is_next = True
        told: list[asyncio.Future[OSError | None]] = []
        for offset in (1, 3):
            step = run.partition.log.delete_records(offset)
            assert isinstance(step, DurableStep)
            told.append(asyncio.get_running_loop().create_future())
            run.hosted.submit_step(step, told[-1].set_result)
        assert await asyncio.to_thread(disk.has_paused.wait, 20)
        await asyncio.wait(told, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        disk.may_go_on.set()
        assert await asyncio.wait_for(asyncio.gather(*told), 20) == [None, None]
        topic = run.hosted.topic("t")
        assert topic is not None
        key = topic.topic.topic_id, 0
        found = CheckpointFile.load(disk, [key]).get(*key)
        assert found is not None
        assert found.log_start_offset == 3
        await stopped(disk, run)

    asyncio.run(story())


def test_run_without_fsync_writes_recovery_checkpoint(tmp_path: Path) -> None:
    class Counting(RealDisk):
        synced = 0

        def sync(self, *paths: str) -> None:
            self.synced += sum(path.endswith(".log") for path in paths)
            super().sync(*paths)

    async def story() -> None:
        disk = Counting(tmp_path)
        settings = BrokerSettings(offsets_partitions=1, is_fsync_enabled=False)
        run = Running(await Broker.start(disk, settings, host="127.0.0.1", port=0))
        await run.create(segment_ms="1")
        await run.produce(*[b"%d" % n for n in range(10)])
        counts = []
        for _ in range(3):
            disk.synced = 0
            await run.broker._maintenance.check_retention_once()
            counts.append(disk.synced)
            await run.produce(b"one more")
        assert counts == [10, 2, 2], "the one that was open, and the one that came"
        await stopped(disk, run)

    asyncio.run(story())


def test_run_failure_in_one_partition_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        disk = RealDisk(tmp_path)
        run = await running(disk)
        await run.hosted.create("faulty", 1, {})
        await run.create(retention_ms="0")
        await run.produce(b"old")
        faulty = run.hosted.partition("faulty", 0)
        assert faulty is not None
        faulty.log = None  # type: ignore[assignment]
        await run.broker._maintenance.check_retention_once()
        assert run.partition.log.log_start_offset == 1
        (told,) = [r for r in caplog.records if r.exc_info]
        assert told.getMessage() == "maintenance of faulty-0 failed"
        caplog.clear()
        await run.hosted.delete("faulty")
        await stopped(disk, run)

    asyncio.run(story())
