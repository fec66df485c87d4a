"""A minimal shell for one partition, and batches to append."""

from __future__ import annotations

from collections.abc import Sequence

from partage.log.catalogue.topic_config import LogConfig
from partage.log.checkpoints import CheckpointFile
from partage.log.compaction.cleaner import compact
from partage.log.compaction.plan import CompactionResult
from partage.log.compaction.segment_swap import finish_swap
from partage.log.disk import Disk
from partage.log.io import perform_step, perform_writes
from partage.log.layout import CHECKPOINT_FILE
from partage.log.memory_disk import MemoryDisk
from partage.log.producer_state import VerificationGuard
from partage.log.recovery.partition_recovery import OpenedPartition, open_partition
from partage.log.results import AppendResult, DurableStep, Refusal, Write
from partage.wire.records.batch import HEADER_SIZE, checksum, whole_batches
from partage.wire.records.columns import RecordTuple
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.types import Buffer

TOPIC_ID = bytes(range(16))
DIRECTORY = "flights-0"
NOW_MS = 1_700_000_000_000

Pair = tuple[bytes | None, bytes | None]


def batch(
    *values: bytes | Pair,
    at_ms: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: int = 0,
) -> bytes:
    """Return a batch of values, or of keys and values; ``producer`` is id, epoch, sequence."""
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    producer_id, epoch, sequence = producer
    return encode_batch(
        [
            SimpleRecord(key, value, timestamp_ms=at_ms + at)
            for at, (key, value) in enumerate(pairs)
        ],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=compression,
    )


def unreadable(made: bytes) -> bytes:
    """Return the same batch with a valid checksum, but content that cannot be decompressed."""
    content = bytearray(made)
    content[HEADER_SIZE : HEADER_SIZE + 4] = b"????"
    content[17:21] = checksum(content, 0, len(content)).to_bytes(4, "big")
    return bytes(content)


class Host:
    """A partition with a shell that performs the I/O of its log."""

    def __init__(self, disk: Disk | None = None, **configs: object) -> None:
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self.configs = {name.replace("_", "."): str(value) for name, value in configs.items()}
        self.now_ms = NOW_MS
        self.writes: list[Write] = []
        self.opened = self.open()

    def open(self, *, cuts_nothing: bool = False) -> OpenedPartition:
        """Open or reopen the partition. Writes that were not flushed are lost."""
        self.writes = []
        markers = CheckpointFile.load(self.disk, [(TOPIC_ID, 0)])
        self.opened = open_partition(
            self.disk,
            DIRECTORY,
            LogConfig.from_configs(self.configs),
            markers.slot(TOPIC_ID, 0),
            markers.get(TOPIC_ID, 0),
            now_ms=self.now_ms,
            cuts_nothing=cuts_nothing,
        )
        self.log = self.opened.log
        return self.opened

    def append(
        self, payload: Buffer, *, guard: VerificationGuard | None = None, **options: bool
    ) -> AppendResult:
        """Append; the writes wait for `flush`."""
        appended = self.log.append(payload, at_ms=self.now_ms, guard=guard, **options)
        assert isinstance(appended, AppendResult), appended
        self.writes += appended.writes
        return appended

    def refused(self, payload: Buffer) -> Refusal:
        """Append a payload that must be refused."""
        end_offset = self.log.end_offset
        refusal = self.log.append(payload, at_ms=self.now_ms)
        assert isinstance(refusal, Refusal), refusal
        assert self.log.end_offset == end_offset
        return refusal

    def flush(self, *, sync: bool = True, sync_marker: bool = False) -> None:
        """Perform the pending writes, synced or not."""
        end_offset, writes, self.writes = self.log.end_offset, self.writes, []
        perform_writes(self.disk, writes, sync=sync)
        self.log.mark_durable(end_offset, synced=sync)
        perform_writes(self.disk, [self.log.checkpoint_write()], sync=False)
        if sync_marker:
            self.disk.sync(CHECKPOINT_FILE)

    def write(self, *payloads: Buffer) -> None:
        """Append and flush each payload."""
        for payload in payloads:
            self.append(payload)
            self.flush()

    def perform(self, step: DurableStep | Refusal | None) -> None:
        """Perform a step and its removals."""
        assert isinstance(step, DurableStep), step
        perform_step(self.disk, step)
        for path in step.removals:
            self.disk.remove(path)

    def close(self) -> None:
        self.perform(self.log.close())

    def compact(self, **options: int) -> CompactionResult | None:
        """Compact if a compaction is due."""
        plan = self.log.plan_compaction(self.now_ms)
        if plan is None:
            return None
        compacted = compact(self.disk, plan, **options)
        self.log.apply_compaction(compacted)
        finish_swap(self.disk, DIRECTORY, compacted.swap)
        return compacted

    def fetch(self, offset: int, bytes_max: int = 1 << 20) -> bytes:
        """Return the bytes that a consumer receives."""
        slices = self.log.locate(offset, bytes_max)
        assert not isinstance(slices, Refusal), slices
        return b"".join(self.disk.read(one.path, one.position, one.length) for one in slices)

    def records(self) -> list[RecordTuple]:
        """Return all readable records, one fetch after the other."""
        records, offset = list[RecordTuple](), self.log.log_start_offset
        while content := self.fetch(offset, 700):
            found = decode_records(content, offset)
            records += found
            offset = max(_end_of(content), offset + 1)
        return records

    def values(self) -> list[bytes | None]:
        return [value for _, _, _, value, _ in self.records()]

    def files(self) -> list[str]:
        return self.disk.names(DIRECTORY)


def _end_of(content: bytes) -> int:
    return max(header.next_offset for _, header in whole_batches(content))


def offsets(records: Sequence[RecordTuple]) -> list[int]:
    return [record[0] for record in records]
