"""The logs of a production broker: delays of the disk, and the history of what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from partage.broker.broker import Broker
from partage.broker.topics.log_writer import LogWriteCallback, LogWriter
from partage.broker.topics.partition import Partition
from partage.lab.brokers.shell import BrokerShell
from partage.lab.names import OUTPUT_TOPIC
from partage.log.layout import LOG_SUFFIX
from partage.log.results import Write
from partage.model.topic_partition import TopicPartition


class RecordedLogWriter(LogWriter):
    """A log writer that takes the time of the simulated disk, and records batches.

    Half of the delay passes before the write and half after it. So a power failure can find data
    that is not yet written, or written but not yet acknowledged.
    """

    owner: ClassVar[BrokerShell]

    def __init__(self, disk: Any, *, sync: bool, inline: bool) -> None:
        super().__init__(disk, sync=sync, inline=inline, now_s=asyncio.get_running_loop().time)
        #: Writes that have not ended, by directory.
        self._unwritten: dict[str, list[bytes]] = {}

    def tail(self, directory: str) -> bytes:
        """Return the batches of a partition whose writes have not ended."""
        return b"".join(self._unwritten.get(directory, ()))

    def submit(self, writes: Sequence[Write], done: LogWriteCallback) -> None:
        """Record batches, and submit the writes."""
        directory, content = "", b""
        for write in writes:
            if write.path.endswith(LOG_SUFFIX):
                directory = write.path.rpartition("/")[0]
                content = b"".join(bytes(chunk) for chunk in write.chunks)
        if not content:
            super().submit(writes, done)
            return
        self.owner.on_batch_written(directory, content)
        unwritten = self._unwritten.setdefault(directory, [])
        unwritten.append(content)

        def ended(error: OSError | None) -> None:
            del unwritten[0]
            done(error)

        super().submit(writes, ended)

    def _start_group(self) -> None:
        delay_s = self.owner.disk_delay_ms() / 1000
        group, finish = self._take_group(), self._finish

        def perform() -> None:
            error = self._perform(group)
            self._loop.call_later(delay_s / 2, finish, group, error)

        self._loop.call_later(delay_s / 2, perform)


def record_logs(owner: BrokerShell, broker: Broker) -> None:
    """Record the openings of logs, and their compactions."""
    loader, maintenance = broker.log_manager._loader, broker._maintenance
    open_partitions, compact = loader.open, maintenance._compact
    compactions = owner.compactions

    def opened(topic: Any, indexes: Iterable[int]) -> dict[int, Partition]:
        found = open_partitions(topic, indexes)
        for index, partition in found.items():
            place, now_ms = TopicPartition(topic.name, index), owner.world.now_ms
            compactions.end(place, now_ms)
            if topic.name == OUTPUT_TOPIC and owner.world.log_observer is not None:
                owner.world.log_observer.on_opened(place, partition.log.end_offset)
            if partition.log.config.compacts:
                _record_plans(owner, broker, place, partition)
        return found

    async def compacted(partition: Partition) -> None:
        await compact(partition)
        topic, _, index = partition.name.rpartition("-")
        compactions.end(TopicPartition(topic, int(index)), owner.world.now_ms)

    instance: Any = loader
    instance.open = opened
    instance = maintenance
    instance._compact = compacted


def _record_plans(
    owner: BrokerShell, broker: Broker, place: TopicPartition, partition: Partition
) -> None:
    log: Any = partition.log
    plan_compaction = log.plan_compaction

    def planned(now_ms: int) -> Any:
        plan = plan_compaction(now_ms)
        if plan is not None:
            writer: Any = broker._writer
            tail = writer.tail(partition.name)
            owner.compactions.begin(place, log, tail, now_ms)
        return plan

    log.plan_compaction = planned
