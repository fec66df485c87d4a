"""What is done every few minutes: retention, compaction, and markers made durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from partage.broker.clock import Clock
from partage.broker.hosted import Hosted
from partage.broker.partition import Partition
from partage.log.compaction import Plan
from partage.log.damage import DamagedLog
from partage.log.disk import Disk
from partage.log.rewriting import compact
from partage.log.swapping import end_swap

log = logging.getLogger(__name__)


class Housekeeping:
    """Goes round all partitions, one after the other, so that it never asks much of the disk."""

    def __init__(self, hosted: Hosted, disk: Disk, clock: Clock) -> None:
        self._hosted = hosted
        self._disk = disk
        self._clock = clock
        self._interval_s = hosted.settings.retention_check_interval_ms / 1000
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with a first round after one interval."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End, between two steps."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.go_round()

    async def go_round(self) -> None:
        """One round; what fails is logged and tried again in the next."""
        for topic in self._hosted.topics():
            for partition in topic.partitions:
                if partition.failure is None:
                    try:
                        await self._see_to(partition)
                    except (OSError, DamagedLog) as error:
                        log.error("%s: %s", partition.name, error)

    async def _see_to(self, partition: Partition) -> None:
        if not self._hosted.settings.syncs:
            # Nothing was synced since the last round; a start after a crash begins from here.
            await self._hosted.perform_and_wait(partition.log.checkpoint())
        removal = partition.log.expired(self._clock.now_ms())
        if removal is not None:
            await self._hosted.perform_and_wait(removal)
            log.info("%s: retention removed %d files", partition.name, len(removal.removals))
            self._remove_later(removal.removals, partition.log.config.file_delete_delay_ms)
        plan = partition.log.plan_compaction(self._clock.now_ms())
        if plan is not None:
            await self._compact(partition, plan)

    async def _compact(self, partition: Partition, plan: Plan) -> None:
        try:
            compacted = await asyncio.to_thread(compact, self._disk, plan)
        except BaseException:
            partition.log.abandon_compaction()
            raise
        partition.log.swap_in(compacted)
        await asyncio.to_thread(end_swap, self._disk, plan.directory, compacted.swap)
        before = sum(segment.size for segment in plan.segments)
        after = sum(size for _, size in compacted.segments)
        log.info("%s: compacted %d bytes to %d", partition.name, before, after)

    def _remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files once reads of them that have begun are over."""
        loop = asyncio.get_running_loop()
        loop.call_later(delay_ms / 1000, self._remove, paths)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                log.error("%s cannot be removed: %s", path, error)
