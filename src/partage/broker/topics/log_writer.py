"""The writer: one thread that writes and syncs, for all logs together, in groups.

Whatever is submitted while a group is being written waits for the next one, so that the number of
syncs a second is the device's, and the number of producers and commits that each one serves grows
with the load. A group begins at the end of a turn of the loop, with all that the turn submitted.
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

LogWriteCallback = Callable[[OSError | None], None]
Submission = tuple[Sequence[Write], LogWriteCallback]


class _WriteGroup(NamedTuple):
    """What is written together."""

    submissions: list[Submission]
    checkpoints: list[Write]


class LogWriter:
    """Performs writes in the order in which they are submitted, and says when they are durable.

    With ``sync`` False durable means handed to the operating system, as Kafka has it by default.
    With ``inline`` the loop's own thread does the work: right for a disk in memory only.
    """

    def __init__(self, disk: Disk, *, sync: bool, inline: bool) -> None:
        self._disk = disk
        self.is_sync_enabled = sync
        self._inline = inline
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Submission] = []
        self._checkpoints: dict[int, Write] = {}  # by their place: the latest of each counts
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
        """Have ``writes`` done after all submitted before; ``done`` is called on the loop.

        It gets None when they are durable, or the error: then of this group nothing is sure.
        """
        self._waiting.append((writes, done))
        self._idle.clear()
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._start_group)

    def queue_checkpoint(self, marker: Write) -> None:
        """Write a marker along with the next group, or alone if there is none within a second. It
        need not be synced with it: an older one says less, and nothing that is wrong. So all
        markers are synced together, once a second.
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
        """Return once all that was submitted before is done, or has failed."""
        passed = asyncio.Event()
        self.submit([], lambda error: passed.set())
        await passed.wait()

    async def drain(self) -> None:
        """Return once all that was submitted is done and nothing is left."""
        await self._idle.wait()

    async def close(self) -> None:
        """Drain, and end the thread."""
        await self.drain()
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        if not self._inline:
            self._groups.put(None)
            await self._loop.run_in_executor(None, self._thread.join)

    def _start_group(self) -> None:
        group = _WriteGroup(self._waiting, list(self._checkpoints.values()))
        self._waiting, self._checkpoints = [], {}
        if self._inline:
            self._finish(group, self._perform(group))
        else:
            self._groups.put(group)

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            error = self._perform(group)
            self._loop.call_soon_threadsafe(self._finish, group, error)

    def _perform(self, group: _WriteGroup) -> OSError | None:
        writes = [write for submitted, _ in group.submissions for write in submitted]
        try:
            perform_writes(self._disk, group.checkpoints, sync=False)
            perform_writes(self._disk, writes, sync=self.is_sync_enabled)
            if group.checkpoints and time.monotonic() >= self._checkpoint_sync_due_s:
                self._disk.sync(CHECKPOINT_FILE)
                self._checkpoint_sync_due_s = time.monotonic() + CHECKPOINT_INTERVAL_S
        except OSError as error:
            return error
        except Exception as error:  # no memory, no thread: who waits has to be told all the same
            log.exception("write to the log files failed")
            return OSError(f"{type(error).__name__}: {error}")
        return None

    def _finish(self, group: _WriteGroup, error: OSError | None) -> None:
        for _, done in group.submissions:
            try:
                done(error)
            except Exception:  # a fault of ours: nobody else need wait for ever because of it
                log.exception("a write callback failed")
        if self._waiting:
            self._loop.call_soon(self._start_group)
        else:
            self._is_running = False
            self._idle.set()
