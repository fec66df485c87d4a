"""A shell for one partition, as small as can be, and batches to append."""

from __future__ import annotations

from collections.abc import Sequence

from partage.log.compaction import Compacted
from partage.log.config import LogConfig
from partage.log.disk import Disk
from partage.log.layout import MARKERS
from partage.log.markers import Markers
from partage.log.memory import MemoryDisk
from partage.log.outcomes import Appended, Refusal, Step, Write
from partage.log.performing import perform, perform_step
from partage.log.recovery import Opened, open_partition
from partage.log.rewriting import compact
from partage.log.swapping import end_swap
from partage.wire.records.batch import HEADER_SIZE, checksum, whole_batches
from partage.wire.records.columns import RecordTuple
from partage.wire.records.decode import decode_records
from partage.wire.records.encode import Record, encode_batch
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
    """A batch of these values, or keys and values; ``producer`` is id, epoch, sequence."""
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    producer_id, epoch, sequence = producer
    return encode_batch(
        [Record(key, value, timestamp_ms=at_ms + at) for at, (key, value) in enumerate(pairs)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=compression,
    )


def unreadable(made: bytes) -> bytes:
    """The same batch with a right checksum over something that cannot be unpacked."""
    content = bytearray(made)
    content[HEADER_SIZE : HEADER_SIZE + 4] = b"????"
    content[17:21] = checksum(content, 0, len(content)).to_bytes(4, "big")
    return bytes(content)


class Host:
    """Holds a partition: performs what its log asks for."""

    def __init__(self, disk: Disk | None = None, **configs: object) -> None:
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self.configs = {name.replace("_", "."): str(value) for name, value in configs.items()}
        self.now_ms = NOW_MS
        self.writes: list[Write] = []
        self.opened = self.open()

    def open(self, *, cuts_nothing: bool = False) -> Opened:
        """Open the partition, first or again; what was not flushed is forgotten."""
        self.writes = []
        markers = Markers.load(self.disk, [(TOPIC_ID, 0)])
        self.opened = open_partition(
            self.disk,
            DIRECTORY,
            LogConfig.of(self.configs),
            markers.slot(TOPIC_ID, 0),
            markers.found(TOPIC_ID, 0),
            now_ms=self.now_ms,
            cuts_nothing=cuts_nothing,
        )
        self.log = self.opened.log
        return self.opened

    def append(self, payload: Buffer, **options: bool) -> Appended:
        """Append and let the writes wait for `flush`."""
        appended = self.log.append(payload, at_ms=self.now_ms, **options)
        assert isinstance(appended, Appended), appended
        self.writes += appended.writes
        return appended

    def refused(self, payload: Buffer) -> Refusal:
        """Append what has to be refused."""
        end_offset = self.log.end_offset
        refusal = self.log.append(payload, at_ms=self.now_ms)
        assert isinstance(refusal, Refusal), refusal
        assert self.log.end_offset == end_offset
        return refusal

    def flush(self, *, sync: bool = True, sync_marker: bool = False) -> None:
        """Write what was appended, durably or as the operating system likes."""
        end_offset, writes, self.writes = self.log.end_offset, self.writes, []
        perform(self.disk, writes, sync=sync)
        perform(self.disk, [self.log.mark_durable(end_offset, synced=sync)], sync=False)
        if sync_marker:
            self.disk.sync(MARKERS)

    def write(self, *payloads: Buffer) -> None:
        """Append and flush each."""
        for payload in payloads:
            self.append(payload)
            self.flush()

    def perform(self, step: Step | Refusal | None) -> None:
        """Do a step and its removals."""
        assert isinstance(step, Step), step
        perform_step(self.disk, step)
        for path in step.removals:
            self.disk.remove(path)

    def close(self) -> None:
        self.perform(self.log.close())

    def compact(self, **options: int) -> Compacted | None:
        """Compact if it is time."""
        plan = self.log.plan_compaction(self.now_ms)
        if plan is None:
            return None
        compacted = compact(self.disk, plan, **options)
        self.log.swap_in(compacted)
        end_swap(self.disk, DIRECTORY, compacted.swap)
        return compacted

    def fetch(self, offset: int, bytes_max: int = 1 << 20) -> bytes:
        """What a consumer gets."""
        slices = self.log.locate(offset, bytes_max)
        assert not isinstance(slices, Refusal), slices
        return b"".join(self.disk.read(one.path, one.position, one.length) for one in slices)

    def records(self) -> list[RecordTuple]:
        """All records that can be read, fetch by fetch."""
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
