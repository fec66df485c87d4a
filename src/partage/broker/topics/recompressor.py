"""Threads that decompress produced batches, shared by all partitions of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Each thread may hold one decompressed batch, of up to 128 MiB.
_THREADS: Final = 2


class Recompressor:
    """Runs validations and recompressions. Threads start when they are needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "partage-compress")
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends, or until `close`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("recompression failed", exc_info=error)

    async def close(self) -> None:
        """Cancel all coroutines: they append nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
