"""The reader of a member's partitions: it consumes the records of a real cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

from partage.client.consumer import Consumer, NothingAssignedError, Record
from partage.client.errors import ClientError
from partage.model.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_POLL_MS: Final = 500
_RETRY_S: Final = 1.0


class TopicReader:
    """Reads partitions from a cluster, and delivers their records.

    A position is the offset after the last delivered record, so a committed record was delivered.
    A partition without a committed offset is read from its beginning.

    Args:
        bootstrap_servers: The brokers.
        deliver: Called with each batch of records, before the positions change.
        on_change: Called with all partitions that are read, when they change.
        before_delivery: Called before ``deliver``. It may stop partitions, whose records are then
            dropped: a process that was suspended must notice the end of its session.
        options: Further options of the consumer.

    Raises:
        InvalidAddressError, InvalidOptionError: An argument is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        deliver: Callable[[list[Record]], None],
        *,
        on_change: Callable[[frozenset[TopicPartition]], None],
        before_delivery: Callable[[], None],
        **options: Any,
    ) -> None:
        self._consumer = Consumer(bootstrap_servers, **{"auto_offset_reset": "earliest", **options})
        self._deliver = deliver
        self._on_change = on_change
        self._before_delivery = before_delivery
        self._active: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._has_partitions = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._task is not None, "the reader was not started"
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._consumer.close()

    async def wait_failed(self) -> None:
        """Return never; raise the error with which ``deliver`` failed."""
        assert self._task is not None, "the reader was not started"
        # Not `asyncio.shield`: on Python 3.14, it logs the error after a cancellation.
        await asyncio.wait({self._task})
        self._task.result()

    def on_error(self, error: ClientError) -> bool:
        """Handle an error of the consumer; False to log it and to try again."""
        return False

    # Implementation of `PartitionReader`

    def start(self, offsets: dict[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets (-1: from the beginning)."""
        for partition, offset in offsets.items():
            self._positions.pop(partition, None)
            if offset >= 0:
                self._positions[partition] = offset
        # A partition that was stopped before continues at its offset, not at its old position.
        self._active -= offsets.keys()
        self._consumer.assign(sorted(self._active))
        self._assign(self._active | offsets.keys())

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Stop to read these partitions, or all if None. Their positions stay known."""
        self._assign(set() if partitions is None else self._active - partitions)

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """Read stopped partitions again from their positions."""
        self._assign(self._active | partitions)

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the next records; no entry if nothing was read or committed."""
        return {each: self._positions[each] for each in partitions if each in self._positions}

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        before, self._active = self._active, set(partitions)
        added = self._active - before
        self._consumer.assign(sorted(self._active))
        for partition in added & self._positions.keys():
            self._consumer.seek(partition, self._positions[partition])
        if self._active:
            self._has_partitions.set()
        else:
            self._has_partitions.clear()
        if self._active != before:
            names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(self._active))
            log.info("reading %s", names or "nothing")
            self._on_change(frozenset(self._active))

    async def _run(self) -> None:
        while True:
            await self._has_partitions.wait()
            try:
                polled = list(await self._consumer.poll(_POLL_MS))
            except NothingAssignedError:  # all partitions were stopped while it waited
                continue
            except ClientError as error:
                if not self.on_error(error):
                    log.warning("cannot read records: %s", error)
                    await asyncio.sleep(_RETRY_S)
                continue
            if not polled:
                continue
            for record in polled:
                self._positions.setdefault(
                    TopicPartition(record.topic, record.partition), record.offset
                )
            self._before_delivery()
            records = [
                each
                for each in polled
                if TopicPartition(each.topic, each.partition) in self._active
            ]
            if records:
                self._deliver(records)
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                self._positions[partition] = record.offset + 1
