"""The broker's storage in a world: its logs, the disk writer, and power failures.

Logs, recovery and durability are production code (`partage.log`). Only the thread that waits for
the disk is replaced by the virtual clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, Protocol

from partage.lab.brokers.compaction_recorder import CompactionRecorder
from partage.lab.environment.clock import Clock
from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.lab.history import OutputReread, PartitionReread
from partage.lab.names import OUTPUT_TOPIC
from partage.lab.options import DELETE_RETENTION_MS
from partage.lab.recorded_batches import decode_batches
from partage.log.catalogue.topic_config import LogConfig
from partage.log.checkpoints import CheckpointFile
from partage.log.compaction.cleaner import compact
from partage.log.compaction.segment_swap import finish_swap
from partage.log.io import perform_writes
from partage.log.layout import CHECKPOINT_FILE, LOG_SUFFIX, offset_from_name, partition_directory
from partage.log.partition import PartitionLog
from partage.log.producer_state import VerificationGuard
from partage.log.recovery.partition_recovery import open_partition
from partage.log.results import AppendResult, Refusal, Write
from partage.log.segments.aborted_index import AbortedTransaction
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_admission import AdmissionKey
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.wire.records.decoder import decode_records

_MARKERS_EVERY_MS: Final = 1_000
_EVERYTHING: Final = 1 << 40
_MIN_LAG_MS: Final = 1_000  # before the records of a compacted topic are compacted
_STATE_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def topic_id_of(topic: str) -> bytes:
    """Return the id of a topic. It is derived from the name, because worlds have no topic
    catalogue.
    """
    return hashlib.blake2b(topic.encode(), digest_size=16).digest()


@cache
def _configs(
    segment_bytes: int, delete_retention_ms: int
) -> tuple[LogConfig, LogConfig, LogConfig]:
    """Return the log configurations of topics, of coordinators' logs and of compacted topics."""
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(delete_retention_ms),
    }
    size = {"segment.bytes": str(segment_bytes)}
    lag = {"min.compaction.lag.ms": f"{_MIN_LAG_MS}"}
    return (
        LogConfig.from_configs(size),
        LogConfig.from_configs(compacted | size),
        LogConfig.from_configs(compacted | size | lag),
    )


AppendCallback = Callable[[ErrorCode], None]


class LogObserver(Protocol):
    """Records the batches of the topic that transactional producers write to."""

    def on_opened(self, partition: TopicPartition, end_offset: int) -> None:
        """Handle the opening of a log."""

    def on_appended(self, partition: TopicPartition, content: bytes) -> None:
        """Handle stored batches."""


class HostedPartition:
    """A partition on the broker's disk."""

    def __init__(
        self,
        place: TopicPartition,
        log: PartitionLog,
        writer: DiskWriter,
        observer: LogObserver | None,
    ) -> None:
        self.name = f"{place.topic}-{place.partition}"
        self.log = log
        self.failure: OSError | None = None
        #: See `partage.runtime.transaction_admission`.
        self.admissions: dict[AdmissionKey, list[Callable[[ErrorCode], None]]] = {}
        self._place = place
        self._writer = writer
        self._observer = observer
        self._unwritten: list[bytes] = []

    @property
    def tail(self) -> bytes:
        """The appended batches whose writes have not ended; only of a compacted log."""
        return b"".join(self._unwritten)

    def append(
        self,
        payload: bytes,
        done: AppendCallback,
        *,
        at_ms: int,
        from_client: bool = True,
        guard: VerificationGuard | None = None,
    ) -> AppendResult | Refusal:
        """Append batches. ``done`` is called when they are durable, or with an error."""
        if self.failure is not None:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline")
        appended = self.log.append(payload, at_ms=at_ms, from_client=from_client, guard=guard)
        return self._submit(appended, done)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
        at_ms: int,
        done: AppendCallback,
    ) -> AppendResult | Refusal:
        """Append a marker: see `PartitionLog.append_marker`."""
        if self.failure is not None:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline")
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            is_commit=is_commit,
            transaction_version=transaction_version,
            at_ms=at_ms,
        )
        return self._submit(appended, done)

    def _submit(
        self, appended: AppendResult | Refusal, done: AppendCallback
    ) -> AppendResult | Refusal:
        """Submit the writes of an append, if it was not refused."""
        if isinstance(appended, Refusal):
            return appended
        is_compacted = self.log.config.compacts
        if (self._observer is not None or is_compacted) and appended.writes:
            content = b"".join(bytes(chunk) for chunk in appended.writes[-1].chunks)
            if is_compacted:
                self._unwritten.append(content)
            if self._observer is not None:
                self._observer.on_appended(self._place, content)
        end_offset = self.log.end_offset

        def written(error: OSError | None) -> None:
            if is_compacted and appended.writes:
                del self._unwritten[0]
            if error is not None:
                self.failure = error
            if self.failure is not None:
                done(ErrorCode.KAFKA_STORAGE_ERROR)
                return
            self.log.mark_durable(end_offset)
            self._writer.queue_checkpoint(self.log.checkpoint_write())
            done(ErrorCode.NONE)

        self._writer.submit(appended.writes, written)
        return appended


class DiskWriter:
    """Performs writes in groups, each after a random disk delay."""

    def __init__(
        self,
        disk: CrashDisk,
        clock: Clock,
        delay_ms: Callable[[], int],
        on_crash: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._delay_ms = delay_ms
        self._on_crash = on_crash
        self._waiting: list[tuple[Sequence[Write], Callable[[OSError | None], None]]] = []
        self._checkpoints: dict[int, Write] = {}
        self._is_running = False
        self._is_checkpoint_scheduled = False
        self._markers_due_ms = 0
        self.is_closed = False

    def submit(self, writes: Sequence[Write], done: Callable[[OSError | None], None]) -> None:
        """Queue writes behind all earlier ones."""
        self._waiting.append((writes, done))
        if not self._is_running:
            self._is_running = True
            self._clock.call_later(0, self._begin)

    def queue_checkpoint(self, marker: Write) -> None:
        """Queue a checkpoint for the next group, or for a separate write within a second."""
        self._checkpoints[marker.position] = marker
        if not self._is_checkpoint_scheduled:
            self._is_checkpoint_scheduled = True
            self._clock.call_later(_MARKERS_EVERY_MS, self._write_checkpoints)

    def _write_checkpoints(self) -> None:
        self._is_checkpoint_scheduled = False
        if self._checkpoints and not self.is_closed:
            self.submit([], lambda error: None)

    def _begin(self) -> None:
        if self.is_closed:
            return
        group, notes = self._waiting, list(self._checkpoints.values())
        self._waiting, self._checkpoints = [], {}
        delay_ms = self._delay_ms()
        # Half of the delay passes before the write and half after it. So a power failure can find
        # data that is not yet written, or written but not yet acknowledged.
        early_ms = delay_ms // 2
        self._clock.call_later(early_ms, lambda: self._perform(group, notes, delay_ms - early_ms))

    def _perform(
        self,
        group: list[tuple[Sequence[Write], Callable[[OSError | None], None]]],
        notes: list[Write],
        rest_ms: int,
    ) -> None:
        if self.is_closed:
            return
        error: OSError | None = None
        try:
            perform_writes(self._disk, notes, sync=False)
            perform_writes(self._disk, [write for writes, _ in group for write in writes])
            if notes and self._clock.now_ms >= self._markers_due_ms:
                self._disk.sync(CHECKPOINT_FILE)
                self._markers_due_ms = self._clock.now_ms + _MARKERS_EVERY_MS
        except PowerLossError:
            self._on_crash()
            return
        except OSError as failure:
            error = failure
        self._clock.call_later(rest_ms, lambda: self._finish(group, error))

    def _has_died(self) -> bool:
        return self.is_closed

    def _finish(
        self,
        group: list[tuple[Sequence[Write], Callable[[OSError | None], None]]],
        error: OSError | None,
    ) -> None:
        if self.is_closed:
            return
        for _, done in group:
            if not self._has_died():  # at a crash point of an earlier callback
                done(error)
        if self._has_died():
            return
        if self._waiting:
            self._begin()
        else:
            self._is_running = False


class Storage:
    """The partitions on the broker's disk, during one process.

    Raises:
        DamagedLogError: Acknowledged bytes are missing or changed.
        OSError, PowerLossError: The disk fails.
    """

    def __init__(
        self,
        disk: CrashDisk,
        writer: DiskWriter,
        places: Sequence[TopicPartition],
        segment_bytes: int,
        now_ms: int,
        observer: LogObserver | None = None,
        compactions: CompactionRecorder | None = None,
        delete_retention_ms: int = DELETE_RETENTION_MS,
        compacted_topics: Sequence[str] = (),
    ) -> None:
        self._disk = disk
        self._observer = observer
        self._compactions = compactions
        self._writer = writer
        self._config, state_config, compacted_config = _configs(segment_bytes, delete_retention_ms)
        self._configs = dict.fromkeys(_STATE_TOPICS, state_config)
        self._configs |= dict.fromkeys(compacted_topics, compacted_config)
        known = [(topic_id_of(topic), index) for topic, index in places]
        # As in a broker, whose catalogue is empty at the first start.
        self._markers = CheckpointFile.load(disk, known if disk.names("") else [])
        self.partitions: dict[TopicPartition, HostedPartition] = {}
        for topic, index in places:
            self.open(topic, index, now_ms)

    def open(self, topic: str, index: int, now_ms: int) -> HostedPartition:
        """Open a partition, or open it again."""
        topic_id = topic_id_of(topic)
        marker = self._markers.get(topic_id, index)
        opened = open_partition(
            self._disk,
            partition_directory(topic, index),
            self._configs.get(topic, self._config),
            self._markers.slot(topic_id, index),
            marker,
            now_ms=now_ms,
            cuts_nothing=marker is None and self._markers.damaged_count > 0,
        )
        place = TopicPartition(topic, index)
        if self._compactions is not None:
            self._compactions.end(place, now_ms)
        observer = self._observer if topic == OUTPUT_TOPIC else None
        if observer is not None:
            observer.on_opened(place, opened.log.end_offset)
        partition = HostedPartition(place, opened.log, self._writer, observer)
        self.partitions[place] = partition
        return partition

    @staticmethod
    def acknowledged_lengths(disk: CrashDisk, topic: str) -> dict[str, int]:
        """Return the log files of a topic's first partition, with their acknowledged lengths
        according to the checkpoints on the disk.
        """
        topic_id, directory = topic_id_of(topic), partition_directory(topic, 0)
        try:
            marker = CheckpointFile.load(disk, [(topic_id, 0)]).get(topic_id, 0)
        except OSError:
            return {}
        if marker is None:
            return {}
        names = [name for name in disk.names(directory) if name.endswith(LOG_SUFFIX)]
        bases = {name: offset_from_name(name, LOG_SUFFIX) for name in names}
        return {
            f"{directory}/{name}": marker.position
            if base == marker.base_offset
            else disk.size(f"{directory}/{name}")
            for name, base in bases.items()
            if base is not None and base <= marker.base_offset
        }

    def read(self, partition: HostedPartition, offset: int, bytes_max: int) -> list[bytes]:
        """Return the durable batches from an offset on."""
        slices = partition.log.locate(offset, bytes_max)
        if isinstance(slices, Refusal):
            raise OSError(slices.message)
        return [self._disk.read(part.path, part.position, part.length) for part in slices]

    def read_committed(
        self, partition: HostedPartition, offset: int, bytes_max: int
    ) -> tuple[bytes, list[AbortedTransaction]]:
        """Return the stable batches from an offset on, and the aborted transactions in them."""
        slices = partition.log.locate(offset, bytes_max, only_stable=True)
        if isinstance(slices, Refusal):
            raise OSError(slices.message)
        aborted = partition.log.aborted_transactions(offset, slices)
        parts = [self._disk.read(part.path, part.position, part.length) for part in slices]
        return b"".join(parts), aborted

    def reread_partition(
        self, place: TopicPartition, partition: HostedPartition, now_ms: int
    ) -> PartitionReread:
        """Return all records of a partition, read from the disk."""
        first, end = partition.log.log_start_offset, partition.log.high_watermark
        records: list[tuple[int, bytes]] = []
        at = first
        while at < end:
            content = b"".join(self.read(partition, at, 1 << 20))
            found = [r for r in decode_records(content, at) if r[0] >= at]
            if not found:
                break
            records += [(record[0], record[3] or b"") for record in found]
            at = records[-1][0] + 1
        return PartitionReread(
            at_ms=now_ms, partition=place, first=first, end=end, records=tuple(records)
        )

    def reread_output(
        self, place: TopicPartition, partition: HostedPartition, now_ms: int
    ) -> OutputReread:
        """Return all batches of a partition of transactional producers, read from the disk."""
        content = b"".join(self.read(partition, partition.log.log_start_offset, _EVERYTHING))
        batches = tuple(decode_batches(place, content, now_ms))
        return OutputReread(at_ms=now_ms, partition=place, batches=batches)

    def compact(self, now_ms: int, topic: str, index: int) -> bool:
        """Compact a log. Return False if there is nothing to compact."""
        place = TopicPartition(topic, index)
        partition = self.partitions[place]
        log = partition.log
        plan = None if partition.failure else log.plan_compaction(now_ms)
        if plan is None:
            return False
        if self._compactions is not None:
            self._compactions.begin(place, log, partition.tail, now_ms)
        compacted = compact(self._disk, plan)
        log.apply_compaction(compacted)
        finish_swap(self._disk, log.directory, compacted.swap)
        if self._compactions is not None:
            self._compactions.end(place, now_ms)
        return True
