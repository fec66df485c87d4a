"""Periodic maintenance of partition logs: retention, compaction and durable checkpoints.

It also reopens partitions after failed writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final
from weakref import WeakSet

from partage.broker.clock import Clock
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.log.compaction.cleaner import CompactionCancelledError, compact
from partage.log.compaction.segment_swap import finish_swap
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

log = logging.getLogger(__name__)

_REOPEN_DELAY_S: Final = 2.0
_REOPEN_DELAY_MAX_S: Final = 60.0
_PARTITIONS_PER_TURN: Final = 100  # of the event loop
_CLEANER_PAUSE_MIN_S: Final = 0.01  # Kafka accepts a backoff of 0


class LogMaintenance:
    """Maintains the partitions one after the other, to limit the load on the disk.

    Retention runs every ``log.retention.check.interval.ms``. The cleaner looks for partitions to
    compact every ``log.cleaner.backoff.ms``, as in Kafka.

    A partition is deleted or reopened only while no maintenance uses its files, because their names
    may be reused afterwards.
    """

    def __init__(self, log_manager: LogManager, disk: Disk, clock: Clock) -> None:
        self._log_manager = log_manager
        self._disk = disk
        self._clock = clock
        self._interval_s = log_manager.settings.retention_check_interval_ms / 1000
        self._closing = asyncio.Event()
        #: Ends the pause of the cleaner: the broker stops, or its settings have changed.
        self._cleaner_wakes = asyncio.Event()
        #: Not compacted again before the next retention check, because a compaction failed.
        self._uncleanable = WeakSet[Partition]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delays_s: dict[TopicPartition, float] = {}  # of partitions that failed recently

    def start(self) -> None:
        """Start; the first retention check and the first compaction are after one interval each."""
        self._log_manager.on_partition_failed = self._on_partition_failed
        self._spawn(self._check_retention())
        self._spawn(self._clean())

    def on_settings_changed(self) -> None:
        """Let the cleaner look for work now: its backoff or the topic defaults have changed."""
        self._cleaner_wakes.set()

    async def close(self) -> None:
        """Stop after the current step; a running compaction is cancelled."""
        self._closing.set()
        self._cleaner_wakes.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pause(self, delay_s: float, until: asyncio.Event | None = None) -> None:
        """Wait for a delay, or until an event, by default `close`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await (until or self._closing).wait()

    async def _check_retention(self) -> None:
        while not self._closing.is_set():
            await self._pause(self._interval_s)
            await self.check_retention_once()

    async def _clean(self) -> None:
        while not self._closing.is_set():
            backoff_s = self._log_manager.settings.cleaner_backoff_ms / 1000
            await self._pause(max(backoff_s, _CLEANER_PAUSE_MIN_S), self._cleaner_wakes)
            if not self._closing.is_set():
                self._cleaner_wakes.clear()
            await self.clean_once()

    async def check_retention_once(self) -> None:
        """Apply retention to all partitions; log failures, and try again in the next run."""
        self._uncleanable.clear()
        async for partition in self._partitions():
            async with partition.maintenance_lock:
                await self._attempt(partition, self._apply_retention)

    async def clean_once(self) -> None:
        """Compact all partitions that need it.

        Log failures, and try these partitions again after the next retention check.
        """
        async for partition in self._partitions():
            if partition not in self._uncleanable:
                async with partition.maintenance_lock:
                    if not await self._attempt(partition, self._compact):
                        self._uncleanable.add(partition)

    async def _partitions(self) -> AsyncIterator[Partition]:
        """Yield all partitions, with pauses for requests: most of them need no work."""
        topics = self._log_manager.topics()
        partitions = [one for topic in topics for one in topic.partitions.values()]
        for count, partition in enumerate(partitions, 1):
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            yield partition

    def _may_continue(self, partition: Partition) -> bool:
        """True if the maintenance of a partition may continue; also called by the compaction's
        thread.
        """
        return partition.failure is None and not self._closing.is_set()

    async def _attempt(
        self, partition: Partition, work: Callable[[Partition], Coroutine[Any, Any, None]]
    ) -> bool:
        """Do a part of the maintenance; return False if it failed."""
        try:
            if self._may_continue(partition):
                await work(partition)
        except CompactionCancelledError:
            pass
        except (OSError, DamagedLogError) as error:
            log.error("maintenance failed: partition=%s error=%s", partition.name, error)
            return False
        except Exception:  # a bug; the other partitions need maintenance nevertheless
            log.exception("maintenance of %s failed", partition.name)
            return False
        return True

    async def _apply_retention(self, partition: Partition) -> None:
        if not self._log_manager.settings.is_fsync_enabled:
            # Nothing was synced since the last run; recovery after a crash starts here.
            end, checkpoint = partition.log.durable_end, partition.log.checkpoint()
            if checkpoint.writes:
                await self._log_manager.run_step(checkpoint)
                partition.log.mark_synced(end)
        removal = partition.log.apply_retention(self._clock.wall_ms())
        if removal is not None:
            await self._log_manager.run_step(removal)
            log.info(
                "retention removed files: partition=%s count=%d",
                partition.name,
                len(removal.removals),
            )
            self._spawn(self._remove_later(partition, removal.removals))

    async def _compact(self, partition: Partition) -> None:
        plan = partition.log.plan_compaction(self._clock.wall_ms())
        if plan is None:
            return
        try:
            compacted = await asyncio.to_thread(
                compact, self._disk, plan, is_wanted=lambda: self._may_continue(partition)
            )
        except BaseException:
            partition.log.abandon_compaction()
            raise
        try:
            partition.log.apply_compaction(compacted)
        # some files have their new names; opening the partition renames the others
        except OSError as error:
            partition.fail(error)
            raise
        await asyncio.to_thread(finish_swap, self._disk, plan.directory, compacted.swap)
        before = sum(segment.size for segment in plan.segments)
        after = sum(segment.size for segment in compacted.segments)
        log.info(
            "compacted: partition=%s bytes_before=%d bytes_after=%d", partition.name, before, after
        )

    async def _remove_later(self, partition: Partition, paths: Sequence[str]) -> None:
        """Remove files after a delay, when earlier reads of them have ended.

        If the broker stops before, the next start removes them.
        """
        await self._pause(partition.log.config.file_delete_delay_ms / 1000)
        async with partition.maintenance_lock:
            if self._may_continue(partition):
                await asyncio.to_thread(self._remove, paths)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                log.error("file %s cannot be removed: %s", path, error)

    # A failure may be temporary: a full disk, or too many open files.

    def _on_partition_failed(self, topic: str, index: int) -> None:
        if topic != OFFSETS_TOPIC:  # the shard's host reopens these
            self._spawn(self._reopen(topic, index))

    async def _reopen(self, topic: str, index: int) -> None:
        """Reopen a partition; the delay grows if it fails again soon."""
        place = TopicPartition(topic, index)
        while not self._closing.is_set():
            delay_s = self._delays_s.get(place, _REOPEN_DELAY_S)
            self._delays_s[place] = min(2 * delay_s, _REOPEN_DELAY_MAX_S)
            await self._pause(delay_s)
            if not self._closing.is_set() and await self._try_reopen(topic, index):
                break
        await self._pause(_REOPEN_DELAY_MAX_S)
        partition = self._log_manager.partition(topic, index)
        if partition is None or partition.failure is None:
            self._delays_s.pop(place, None)

    async def _try_reopen(self, topic: str, index: int) -> bool:
        try:
            if await self._log_manager.reopen_failed(topic, index):
                log.info("reopened partition %s-%d", topic, index)
        except (OSError, DamagedLogError) as error:
            log.error("reopening of partition %s-%d failed: %s", topic, index, error)
            return False
        except Exception:  # a bug; retry, it may depend on the state
            log.exception("reopening of partition %s-%d failed", topic, index)
            return False
        return True
