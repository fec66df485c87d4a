"""A partition that this broker holds: its log, the writer behind it, and who waits for records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from partage.broker.topics.log_writer import LogWriter
from partage.log.partition import PartitionLog
from partage.log.results import AppendResult, Refusal
from partage.model.errors import ErrorCode
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

AppendCallback = Callable[[ErrorCode], None]


class PartitionListener(Protocol):
    """Somebody who waits for records."""

    def on_partition_changed(self, byte_count: int) -> None:
        """So many more bytes can be read; 0 if the partition is not what it was."""


class Partition:
    """One partition. After a failed write it is offline, for its log is ahead of its files:
    ``on_failed`` is called, to have it opened again.
    """

    def __init__(
        self, name: str, log: PartitionLog, writer: LogWriter, on_failed: Callable[[], None]
    ) -> None:
        self.name = name
        self.log = log
        #: Held by housekeeping while it works on the files, and by who wants to take them away.
        self.maintenance_lock = asyncio.Lock()
        self._writer = writer
        self._on_failed = on_failed
        self._listeners: dict[PartitionListener, None] = {}
        self.failure: OSError | None = None
        #: What whoever uses the partition is told; NONE as long as there is no failure.
        self.error = ErrorCode.NONE

    # Writing.

    def append(
        self, payload: Buffer, done: AppendCallback, *, at_ms: int, from_client: bool = True
    ) -> AppendResult | Refusal:
        """Append batches; ``done`` is called once they are durable, or with the error.

        A refusal changes nothing, and ``done`` is not called.
        """
        if self.failure is not None:
            return Refusal(self.error, f"{self.name} is offline: {self.failure}")
        appended = self.log.append(payload, at_ms=at_ms, from_client=from_client)
        if isinstance(appended, Refusal):
            return appended
        end_offset = self.log.end_offset
        size = len(payload)

        def written(error: OSError | None) -> None:
            if error is not None:
                self.fail(error)
            if self.failure is not None:
                done(self.error)
                return
            self._on_durable(end_offset, size)
            done(ErrorCode.NONE)

        # A duplicate writes nothing, but waits for the write that it repeats.
        self._writer.submit(appended.writes, written)
        return appended

    def _on_durable(self, end_offset: int, byte_count: int) -> None:
        marker = self.log.mark_durable(end_offset, synced=self._writer.is_sync_enabled)
        if self._writer.is_sync_enabled:
            self._writer.queue_checkpoint(marker)
        self._notify(byte_count)

    def fail(self, error: OSError) -> None:
        """Go offline: the log and its files are not the same any more."""
        if self.failure is None:
            log.error("partition %s went offline, a write failed: %s", self.name, error)
            self.failure, self.error = error, ErrorCode.KAFKA_STORAGE_ERROR
            self._notify(0)
            self._on_failed()

    # Waiting.

    def add_listener(self, watcher: PartitionListener) -> None:
        """Have the watcher told of new records."""
        self._listeners[watcher] = None

    def remove_listener(self, watcher: PartitionListener) -> None:
        """Have it told no more."""
        self._listeners.pop(watcher, None)

    @property
    def listener_count(self) -> int:
        """How many wait."""
        return len(self._listeners)

    def _notify(self, byte_count: int) -> None:
        for watcher in list(self._listeners):
            watcher.on_partition_changed(byte_count)

    async def retire(
        self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why: str = "deleted"
    ) -> None:
        """The partition is deleted, or opened anew: nobody need wait for it, and once this
        returns nobody has to do with its files.
        """
        self.failure, self.error = OSError(f"{self.name} is {why}"), error
        self._notify(0)
        await self._writer.barrier()
        async with self.maintenance_lock:
            pass  # housekeeping looks at `failure` before and during whatever it does
