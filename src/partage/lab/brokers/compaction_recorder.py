"""Records the segments of a log before and after each compaction, from the files on the disk."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.lab.environment.disk import CrashDisk
from partage.lab.history import HistoryEntry, LogCompacted, SegmentContent
from partage.log.layout import (
    LOG_SUFFIX,
    PROGRESS_FILE,
    offset_from_name,
    partition_directory,
)
from partage.log.partition import PartitionLog
from partage.model.topic_partition import TopicPartition


class CompactionRecorder:
    """Appends each compaction on one disk to the history, also those that were interrupted."""

    def __init__(
        self, disk: CrashDisk, broker_id: int, append: Callable[[HistoryEntry], None]
    ) -> None:
        self._disk = disk
        self._broker_id = broker_id
        self._append = append
        #: The compactions without a known end, and the progress before each.
        self._begun: dict[TopicPartition, tuple[LogCompacted, bytes]] = {}
        #: The flipped bits of each file at the begin. A compaction may copy them unnoticed: no
        #: checksum covers the leader epoch of a batch.
        self._flipped: dict[str, frozenset[int]] = {}

    def begin(
        self, partition: TopicPartition, log: PartitionLog, tail: bytes, wall_ms: int
    ) -> None:
        """Handle the begin of a compaction.

        Args:
            partition: The partition.
            log: Its log.
            tail: Batches that were appended and may not be written.
            wall_ms: The wall clock of the broker.
        """
        directory = partition_directory(*partition)
        paths = [f"{directory}/{name}" for name in self._names(directory)]
        self._flipped |= {path: self._disk.flipped(path) for path in paths}
        entry = LogCompacted(
            at_ms=wall_ms,  # until the end
            broker=self._broker_id,
            partition=partition,
            before=self._segments(partition),
            after=(),
            tail=tail,
            high_watermark=log.high_watermark,
            active_segment=log.durable_end.base_offset,
            delete_retention_ms=log.config.delete_retention_ms,
            min_compaction_lag_ms=log.config.min_compaction_lag_ms,
            began_ms=wall_ms,
        )
        self._begun[partition] = entry, self._progress(partition)

    def end(self, partition: TopicPartition, at_ms: int) -> None:
        """Handle the end of a compaction, or the opening of a log after an interruption."""
        begun = self._begun.pop(partition, None)
        if begun is None:
            return
        entry, progress = begun
        self._append(
            msgspec.structs.replace(
                entry,
                at_ms=at_ms,
                after=self._segments(partition),
                is_complete=self._progress(partition) != progress,
            )
        )

    def _segments(self, partition: TopicPartition) -> tuple[SegmentContent, ...]:
        directory = partition_directory(*partition)
        bases = [(name, offset_from_name(name, LOG_SUFFIX)) for name in self._names(directory)]
        return tuple(
            SegmentContent(base, self._written(f"{directory}/{name}"))
            for name, base in bases
            if base is not None
        )

    def _written(self, path: str) -> bytes:
        return self._disk.written(path, self._flipped.get(path, ()))

    def _progress(self, partition: TopicPartition) -> bytes:
        directory = partition_directory(*partition)
        if PROGRESS_FILE not in self._names(directory):
            return b""
        return self._disk.written(f"{directory}/{PROGRESS_FILE}")

    def _names(self, directory: str) -> list[str]:
        return self._disk.names(directory)
