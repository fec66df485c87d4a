"""Reads of log slices, from the page cache on the loop or from disk in a thread.

Timestamp lookups, which may read much, always run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.results import Slice
from partage.log.segments.batch_reader import check_slice
from partage.log.segments.timestamp_lookup import TimestampAndOffset, TimestampLookup
from partage.model.errors import ErrorCode
from partage.wire.types import Buffer

log = logging.getLogger(__name__)


class _DamagedBatch(NamedTuple):
    path: str
    position: int


class LogReader:
    """Reads slices. A slice that cannot be read is returned as the error code for clients.

    CORRUPT_MESSAGE means that the bytes are damaged: consumers raise an error with the offset. They
    would retry KAFKA_STORAGE_ERROR silently, because the disk may recover from an I/O error.
    librdkafka retries each error twice a second, so a damaged batch is logged once.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._damaged: set[_DamagedBatch] = set()  # those that were logged

    def read_cached(self, slices: Sequence[Slice]) -> list[Buffer | ErrorCode] | None:
        """Return the bytes of all slices, or None if a read would have to wait for the device."""
        if not isinstance(self._disk, RealDisk):
            return self._read(slices)
        contents: list[Buffer | ErrorCode] = []
        for part in slices:
            try:
                content = self._disk.read_cached(part.path, part.position, part.length)
            except OSError as error:
                log.error("file %s cannot be read: %s", part.path, error)
                contents.append(ErrorCode.KAFKA_STORAGE_ERROR)
                continue
            if content is None:
                return None
            contents.append(self._validated(part, content))
        return contents

    def read_in_thread(
        self, slices: Sequence[Slice], then: Callable[[list[Buffer | ErrorCode]], None]
    ) -> None:
        """Read in a thread, then call ``then`` on the loop."""
        reading = self._loop.run_in_executor(None, self._read, slices)
        reading.add_done_callback(lambda done: then(done.result()))

    async def look_up_timestamps(
        self, searches: Sequence[TimestampLookup]
    ) -> list[TimestampAndOffset | DamagedLogError | OSError | None]:
        """Return the result of each lookup, or its error."""
        if not isinstance(self._disk, RealDisk):
            # on the loop: no file may grow during a lookup
            return [_run_lookup(search) for search in searches]
        return await self._loop.run_in_executor(
            None, lambda: [_run_lookup(one) for one in searches]
        )

    def _read(self, slices: Sequence[Slice]) -> list[Buffer | ErrorCode]:
        contents: list[Buffer | ErrorCode] = []
        for part in slices:
            try:
                content = self._disk.read(part.path, part.position, part.length)
            except OSError as error:
                log.error("file %s cannot be read: %s", part.path, error)
                contents.append(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                contents.append(self._validated(part, content))
        return contents

    def _validated(self, part: Slice, content: Buffer) -> Buffer | ErrorCode:
        fault = check_slice(part, content)
        if fault is None:
            if self._damaged:
                self._damaged.discard(_DamagedBatch(part.path, part.position))
            return content
        self.log_damage(part.path, part.position, fault)
        return ErrorCode.CORRUPT_MESSAGE

    def log_damage(self, path: str, position: int, fault: str) -> None:
        """Log the damage at a position of a file, unless it was logged before."""
        batch = _DamagedBatch(path, position)
        if batch not in self._damaged:
            self._damaged.add(batch)
            log.error("file %s is damaged at byte %d: %s", path, position, fault)


def _run_lookup(search: TimestampLookup) -> TimestampAndOffset | DamagedLogError | OSError | None:
    try:
        return search()
    except (DamagedLogError, OSError) as error:
        return error
