"""The log writer: one thread that writes and syncs all logs together, in groups.

Writes that are submitted while a group is being written wait for the next group. So the device
determines the number of fsyncs per second, and the number of producers and commits that share one
fsync grows with the load. A group contains all writes of a turn of the loop.

Without sync, 4 KiB go into the page cache within microseconds and 256 KiB in about 0.1 ms, or 1 ms
if the host must provide the pages. The way to the thread and back takes about as long, and needs
more CPU time. So such a group is written on the loop, unless a recent one was slow there. After
each slow group above 4 KiB, the pause before another try doubles: while a producer fills the queue
of the disk, a try every ten seconds would delay heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from partage.log.disk import Disk
from partage.log.io import perform_writes
from partage.log.layout import CHECKPOINT_FILE
from partage.log.results import Write

log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_S: Final = 1.0

#: The size of a group that may be written on the loop, and of a small one.
_LOOP_BYTES_MAX: Final = 256 * 1024
_SMALL_BYTES_MAX: Final = 4096
_LOOP_WRITES_MAX: Final = 16
#: A write on the loop that took longer waited for the device. The next ones then use the thread.
_SLOW_WRITE_S: Final = 0.005
_THREAD_ONLY_S: Final = 10.0
_THREAD_ONLY_MAX_S: Final = 640.0

LogWriteCallback = Callable[[OSError | None], None]
Submission = tuple[Sequence[Write], LogWriteCallback]


class _WriteGroup(NamedTuple):
    """Writes that share an fsync."""

    submissions: list[Submission]
    checkpoints: list[Write]


class LogWriter:
    """Performs writes in the order of submission, and reports when they are durable.

    Args:
        disk: the data directory.
        sync: if False, "durable" means handed to the operating system, which is Kafka's default.
        inline: write everything on the loop's thread; only for a disk in memory.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        sync: bool,
        inline: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk = disk
        self.is_sync_enabled = sync
        self._inline = inline
        self._now_s = now_s
        self._loop_writes_from_s = self._larger_writes_from_s = now_s()
        self._larger_pause_s = _THREAD_ONLY_S
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Submission] = []
        self._checkpoints: dict[int, Write] = {}  # by position: only the latest of each counts
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._checkpoint_sync_due_s = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._groups: queue.SimpleQueue[_WriteGroup | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="partage-writer", daemon=True)
        if not inline:
            self._thread.start()

    def submit(self, writes: Sequence[Write], done: LogWriteCallback) -> None:
        """Submit writes; they are performed after all earlier ones.

        Args:
            writes: the writes.
            done: called on the loop with None once they are durable, or with the error. After an
                error it is unknown which writes of the group were performed.
        """
        self._waiting.append((writes, done))
        self._idle.clear()
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._start_group)

    def queue_checkpoint(self, marker: Write) -> None:
        """Write a checkpoint with the next group, or alone after a second without one.

        A checkpoint need not be synced with its group: an older one is valid, only less complete.
        So all checkpoints are synced together, once per second.
        """
        self._checkpoints[marker.position] = marker
        if self._checkpoint_timer is None:
            self._checkpoint_timer = self._loop.call_later(
                CHECKPOINT_INTERVAL_S, self._write_checkpoints
            )

    def _write_checkpoints(self) -> None:
        self._checkpoint_timer = None
        if self._checkpoints:
            self.submit([], lambda error: None)

    async def barrier(self) -> None:
        """Return once all earlier writes are done or have failed."""
        passed = asyncio.Event()
        self.submit([], lambda error: passed.set())
        await passed.wait()

    async def drain(self) -> None:
        """Return once all writes are done."""
        await self._idle.wait()

    async def close(self) -> None:
        """Drain, then stop the thread."""
        await self.drain()
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        if not self._inline:
            self._groups.put(None)
            await self._loop.run_in_executor(None, self._thread.join)

    def _start_group(self) -> None:
        group = self._take_group()
        if self._inline:
            self._finish(group, self._perform(group))
        elif not self.is_sync_enabled and (size := self._size_on_loop(group)) is not None:
            self._finish(group, self._perform_on_loop(group, size))
        else:
            self._groups.put(group)

    def _take_group(self) -> _WriteGroup:
        """Return the writes and checkpoints that wait."""
        group = _WriteGroup(self._waiting, list(self._checkpoints.values()))
        self._waiting, self._checkpoints = [], {}
        return group

    def _size_on_loop(self, group: _WriteGroup) -> int | None:
        """Return the bytes of a group that may be written on the loop, or None.

        It has few bytes, and creates no file.
        """
        now_s = self._now_s()
        if group.checkpoints or now_s < self._loop_writes_from_s:
            return None
        writes = [write for submitted, _ in group.submissions for write in submitted]
        if len(writes) > _LOOP_WRITES_MAX or not all(write.position for write in writes):
            return None
        size = sum(write.size for write in writes)
        is_delayed = size > _SMALL_BYTES_MAX and now_s < self._larger_writes_from_s
        return None if size > _LOOP_BYTES_MAX or is_delayed else size

    def _perform_on_loop(self, group: _WriteGroup, size: int) -> OSError | None:
        begin_s = self._now_s()
        error = self._perform(group)
        end_s = self._now_s()
        if end_s - begin_s > _SLOW_WRITE_S:
            self._loop_writes_from_s = end_s + _THREAD_ONLY_S
            if size > _SMALL_BYTES_MAX:
                self._larger_writes_from_s = end_s + self._larger_pause_s
                self._larger_pause_s = min(2 * self._larger_pause_s, _THREAD_ONLY_MAX_S)
        return error

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            error = self._perform(group)
            self._loop.call_soon_threadsafe(self._finish, group, error)

    def _perform(self, group: _WriteGroup) -> OSError | None:
        writes = [write for submitted, _ in group.submissions for write in submitted]
        try:
            perform_writes(self._disk, group.checkpoints, sync=False)
            perform_writes(self._disk, writes, sync=self.is_sync_enabled)
            if group.checkpoints and self._now_s() >= self._checkpoint_sync_due_s:
                self._disk.sync(CHECKPOINT_FILE)
                self._checkpoint_sync_due_s = self._now_s() + CHECKPOINT_INTERVAL_S
        except OSError as error:
            return error
        # no memory, no thread: the callbacks must be called nevertheless
        except Exception as error:
            log.exception("write to the log files failed")
            return OSError(f"{type(error).__name__}: {error}")
        return None

    def _finish(self, group: _WriteGroup, error: OSError | None) -> None:
        for _, done in group.submissions:
            try:
                done(error)
            except Exception:  # a bug in a callback: the other callbacks must still be called
                log.exception("a write callback failed")
        if self._waiting:
            self._loop.call_soon(self._start_group)
        else:
            self._is_running = False
            self._idle.set()
