"""The thread and the callbacks of the log writer continue after failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from partage.broker.topics import log_writer
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Buffer
from partage.log.layout import CHECKPOINT_FILE
from partage.log.results import Write

HELLO = [Write("file", 0, [b"hello"])]


class NoThreadsDisk(RealDisk):
    """A disk that cannot start a thread, once."""

    has_failed = False

    def sync(self, *paths: str) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("can't start new thread")
        super().sync(*paths)


async def written(writer: LogWriter, writes: Sequence[Write]) -> OSError | None:
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    writer.submit(writes, told.set_result)
    return await asyncio.wait_for(told, 30)


def test_failing_callback_does_not_block_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        writer = LogWriter(RealDisk(tmp_path), sync=True, inline=False)

        def failing(error: OSError | None) -> None:
            raise ValueError("a fault of ours")

        writer.submit(HELLO, failing)
        assert await written(writer, HELLO) is None  # in the same group
        assert await written(writer, HELLO) is None  # in the next group
        await asyncio.wait_for(writer.close(), 10)

    asyncio.run(story())
    (told,) = [r for r in caplog.records if r.exc_info]
    assert told.getMessage() == "a write callback failed"
    caplog.clear()  # an expected failure; the fixture `no_faults` must not see it


def test_write_failure_is_reported_and_writer_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        writer = LogWriter(NoThreadsDisk(tmp_path), sync=True, inline=False)
        error = await written(writer, HELLO)
        assert isinstance(error, OSError)
        assert "can't start new thread" in str(error)
        assert await written(writer, HELLO) is None
        await asyncio.wait_for(writer.close(), 10)

    asyncio.run(story())
    (told,) = [r for r in caplog.records if r.exc_info]
    assert told.getMessage() == "write to the log files failed"
    caplog.clear()


class RecordingDisk(RealDisk):
    """A disk that records the writes of checkpoints."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.marked: list[tuple[int, bytes]] = []
        self.is_synced = threading.Event()

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        if path == CHECKPOINT_FILE:
            self.marked.append((position, b"".join(chunks)))
        super().write(path, position, chunks)

    def sync(self, *paths: str) -> None:
        super().sync(*paths)
        if self.marked and CHECKPOINT_FILE in paths:
            self.is_synced.set()


def test_checkpoints_at_one_position_latest_is_written(tmp_path: Path) -> None:
    """An older checkpoint after a newer one would be useless."""

    async def story() -> None:
        disk = RecordingDisk(tmp_path)
        writer = LogWriter(disk, sync=True, inline=False)
        for position, content in [(0, b"old"), (64, b"another"), (0, b"new")]:
            writer.queue_checkpoint(Write(CHECKPOINT_FILE, position, [content]))
        assert await written(writer, HELLO) is None
        assert sorted(disk.marked) == [(0, b"new"), (64, b"another")]
        await writer.close()

    asyncio.run(story())


def test_checkpoint_without_writes_is_written_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise damage to the last records before a long pause would look like a torn tail."""
    monkeypatch.setattr(log_writer, "CHECKPOINT_INTERVAL_S", 0.01)

    async def story() -> None:
        disk = RecordingDisk(tmp_path)
        writing = LogWriter(disk, sync=True, inline=False)
        writing.queue_checkpoint(Write(CHECKPOINT_FILE, 64, [b"marker"]))
        assert await asyncio.to_thread(disk.is_synced.wait, 10)
        assert disk.marked == [(64, b"marker")]
        await writing.close()

    asyncio.run(story())


class ThreadsDisk(RealDisk):
    """A disk that records which writes run on the main thread; each takes ``write_s``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.on_loop: list[bool] = []
        self.now_s = 1_000.0
        self.write_s = 0.0

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        self.now_s += self.write_s
        super().write(path, position, chunks)


@pytest.mark.parametrize(
    ("sync", "writes", "is_on_loop"),
    [
        (False, [Write("file", 8, [b"small"])], True),
        (True, [Write("file", 8, [b"small"])], False),
        (False, [Write("file", 0, [b"creates the file"])], False),
        (False, [Write("file", 8, [bytes(256 * 1024)])], True),
        (False, [Write("file", 8, [bytes(256 * 1024 + 1)])], False),
        (False, [Write(f"file{n}", 8, [b"one of many"]) for n in range(17)], False),
    ],
    ids=["small", "synced", "first", "largest", "too large", "many"],
)
def test_small_group_without_sync_is_written_on_the_loop(
    sync: bool, writes: list[Write], is_on_loop: bool, tmp_path: Path
) -> None:
    async def story() -> None:
        disk = ThreadsDisk(tmp_path)
        writer = LogWriter(disk, sync=sync, inline=False)
        assert await written(writer, writes) is None
        assert set(disk.on_loop) == {is_on_loop}
        await writer.close()

    asyncio.run(story())


def test_slow_write_on_the_loop_moves_later_groups_to_the_thread(tmp_path: Path) -> None:
    async def story() -> None:
        disk = ThreadsDisk(tmp_path)
        writer = LogWriter(disk, sync=False, inline=False, now_s=lambda: disk.now_s)
        small = [Write("file", 8, [b"small"])]
        disk.write_s = 0.2
        assert await written(writer, small) is None
        assert await written(writer, small) is None
        disk.now_s += 10
        disk.write_s = 0.0
        assert await written(writer, small) is None
        assert await written(writer, small) is None
        assert disk.on_loop == [True, False, True, True]
        await writer.close()

    asyncio.run(story())


def test_larger_groups_try_the_loop_less_often_after_each_slow_one(tmp_path: Path) -> None:
    async def story() -> None:
        disk = ThreadsDisk(tmp_path)
        writer = LogWriter(disk, sync=False, inline=False, now_s=lambda: disk.now_s)
        small = [Write("file", 8, [b"small"])]
        larger = [Write("file", 8, [bytes(4097)])]
        disk.write_s = 0.25
        assert await written(writer, larger) is None
        disk.now_s += 10
        assert await written(writer, larger) is None
        disk.write_s = 0.0
        disk.now_s += 19
        assert await written(writer, larger) is None
        assert await written(writer, small) is None
        disk.now_s += 1
        assert await written(writer, larger) is None
        assert disk.on_loop == [True, True, False, True, True]
        await writer.close()

    asyncio.run(story())


def test_failed_write_on_the_loop_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        disk = RealDisk(tmp_path)
        (tmp_path / "file").mkdir()  # a write to it fails
        writer = LogWriter(disk, sync=False, inline=False)
        assert isinstance(await written(writer, [Write("file", 8, [b"small"])]), OSError)
        assert await written(writer, [Write("other", 8, [b"small"])]) is None
        await writer.close()

    asyncio.run(story())
