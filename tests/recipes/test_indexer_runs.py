"""Runs of an indexer: stopped early, interrupted, failed, and followed by another run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from partage.client.loop_thread import LoopThread
from partage.recipes import RedundantIndexer
from partage.recipes.errors import IndexFileError
from partage.recipes.sync import RedundantIndexer as BlockingIndexer

from .external_broker import empty_broker, fresh_topic
from .settings import QUICK_READER, run
from .test_indexer import PARTITIONS, fill, is_whole

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def servers(request):
    with empty_broker(request) as servers:
        fresh_topic(servers, "t", PARTITIONS)
        yield servers


def test_stop_before_run_returns_at_once(servers, tmp_path):
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "a", **QUICK_READER) as indexer:
        indexer.stop()
        indexer.run()


def test_cancel_before_thread_starts_ends_run(servers, tmp_path):
    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with RedundantIndexer(
            servers, "search", ["t"], tmp_path / "a", **QUICK_READER
        ) as indexer:
            is_free = threading.Event()
            other = asyncio.ensure_future(asyncio.to_thread(is_free.wait))
            await asyncio.sleep(0)  # the only thread is busy
            running = asyncio.create_task(indexer.run())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.05, is_free.set)
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled()
            await other

    run(main())


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_unindexed_records_come_again_in_next_run(servers, tmp_path, error):
    fill(servers, 0, 30)
    seen = []

    def text(record):
        seen.append(record)
        if len(seen) == 15:
            raise error
        return record.value.decode()

    options = {"text": text, "max_poll_records": 10, **QUICK_READER}
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **options) as indexer:
        with pytest.raises(error):
            indexer.run(to_end=True)
        indexer.run(to_end=True)
    assert all(is_whole(tmp_path, n, 30) for n in range(PARTITIONS))


def test_next_run_opens_failed_index(servers, tmp_path):
    fill(servers, 0, 20)
    in_the_way = tmp_path / "t-3.index"
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
        in_the_way.mkdir()
        for _ in range(2):
            with pytest.raises(IndexFileError, match=r"t-3.index: unable to open"):
                indexer.run(to_end=True)
        in_the_way.rmdir()
        indexer.run(to_end=True)
    assert all(is_whole(tmp_path, n, 20) for n in range(PARTITIONS))


def test_rebalance_starts_no_thread(servers, tmp_path, monkeypatch):
    fill(servers, 0, 5)
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
        monkeypatch.delattr(LoopThread, "_run")
        indexer.run(to_end=True)
    assert all(is_whole(tmp_path, n, 5) for n in range(PARTITIONS))
