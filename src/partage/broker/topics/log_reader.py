"""Reads of log slices, from the page cache on the loop or from disk in a thread.

Timestamp lookups, which may read much, always run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.results import Slice
from partage.log.segments.batch_reader import check_slice
from partage.log.segments.timestamp_lookup import TimestampAndOffset, TimestampLookup
from partage.wire.types import Buffer

log = logging.getLogger(__name__)


class LogReader:
    """Reads slices. A slice that cannot be read is logged and returned as None."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._loop = asyncio.get_running_loop()

    def read_cached(self, slices: Sequence[Slice]) -> list[Buffer | None] | None:
        """Return the bytes of all slices, or None if a read would have to wait for the device."""
        if not isinstance(self._disk, RealDisk):
            return self._read(slices)
        contents: list[Buffer | None] = []
        for part in slices:
            try:
                content = self._disk.read_cached(part.path, part.position, part.length)
            except OSError as error:
                log.error("file %s cannot be read: %s", part.path, error)
                contents.append(None)
                continue
            if content is None:
                return None
            contents.append(_validated(part, content))
        return contents

    def read_in_thread(
        self, slices: Sequence[Slice], then: Callable[[list[Buffer | None]], None]
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

    def _read(self, slices: Sequence[Slice]) -> list[Buffer | None]:
        contents: list[Buffer | None] = []
        for part in slices:
            try:
                content = self._disk.read(part.path, part.position, part.length)
            except OSError as error:
                log.error("file %s cannot be read: %s", part.path, error)
                contents.append(None)
            else:
                contents.append(_validated(part, content))
        return contents


def _run_lookup(search: TimestampLookup) -> TimestampAndOffset | DamagedLogError | OSError | None:
    try:
        return search()
    except (DamagedLogError, OSError) as error:
        return error


def _validated(part: Slice, content: Buffer) -> Buffer | None:
    fault = check_slice(part, content)
    if fault is None:
        return content
    log.error("file %s is damaged at byte %d: %s", part.path, part.position, fault)
    return None
