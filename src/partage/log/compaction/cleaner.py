"""The thread part of a compaction: copy retained records into new segment files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from partage.log.compaction.plan import (
    CleanableSegment,
    CompactedSegment,
    CompactionPlan,
    CompactionResult,
)
from partage.log.compaction.segment_swap import SegmentSwap, begin_swap, resume_swap
from partage.log.compaction.transaction_filter import TransactionFilter
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError, UnreadableBatchError
from partage.log.io import perform_step, perform_writes
from partage.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    segment_file,
    segment_files,
)
from partage.log.results import Write
from partage.log.segments.aborted_index import AbortedIndex
from partage.log.segments.batch_reader import StoredBatch, decode_batch, read_batches
from partage.log.segments.segment import RELATIVE_OFFSET_MAX
from partage.log.segments.segment_indexes import SegmentIndexes
from partage.wire.records.batch import BatchHeader, parse_header
from partage.wire.records.columns import RecordTuple
from partage.wire.records.encoder import SimpleRecord, encode_batch

# Keys held in memory at once. Records beyond them wait for the next compaction.
KEYS_MAX: Final = 1_000_000
_GROUP_BYTES_MAX: Final = 1 << 30
_WRITE_BYTES: Final = 1 << 20
_NEW_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)

_Read = Callable[[CleanableSegment], Iterator[StoredBatch]]


class CompactionCancelledError(Exception):
    """Raised when a compaction was cancelled. Nothing has changed."""


def compact(
    disk: Disk,
    plan: CompactionPlan,
    *,
    keys_max: int = KEYS_MAX,
    is_wanted: Callable[[], bool] = lambda: True,
) -> CompactionResult:
    """Perform a planned compaction up to the point where only the swap is left.

    Args:
        keys_max: Most distinct keys to hold in memory.
        is_wanted: Called before each batch; returning False cancels the compaction.

    Raises:
        DamagedLogError: A segment is damaged. Nothing has changed.
        CompactionCancelledError: ``is_wanted`` returned False.
    """
    # An unfinished swap must be completed first. Otherwise this one overwrites its file, and the
    # next start would see the segments that it should have removed.
    resume_swap(disk, plan.directory)
    perform_step(disk, plan.checkpoint)
    read = partial(_batches, disk, plan, is_wanted)
    transactions = TransactionFilter(
        plan.aborted, plan.producer_epochs, plan.now_ms, plan.config.delete_retention_ms
    )
    latest, end_offset = _latest_offsets(plan, keys_max, read, transactions)
    choice = _RecordFilter(plan, latest, end_offset, transactions)
    outputs = [_rewrite(disk, plan, group, choice, read) for group in _groups(plan)]
    swap = _swap(plan, outputs, end_offset)
    begin_swap(disk, plan.directory, swap)
    return CompactionResult(plan=plan, segments=outputs, swap=swap)


class _RecordFilter:
    """The choice of records that a compaction retains."""

    def __init__(
        self,
        plan: CompactionPlan,
        latest: Mapping[bytes, int],
        end_offset: int,
        transactions: TransactionFilter,
    ) -> None:
        self.transactions = transactions
        self._latest = latest
        self._end_offset = end_offset
        self._tombstones_end = plan.tombstone_horizon
        self._producers_last = plan.producer_last_offsets

    def rewrite(self, batch: StoredBatch) -> bytes:
        """Return the batch with its retained records; empty bytes if none is retained."""
        header = batch.header
        if header.is_control:
            return self.transactions.rewrite_marker(batch)
        self.transactions.note_data(header)
        if header.base_offset >= self._end_offset:
            return batch.content
        if self.transactions.is_aborted(header):
            return self._without_records(header, [])
        try:
            records = decode_batch(batch)
        except UnreadableBatchError:
            return batch.content  # it may date from before the topic was compacted
        kept = [record for record in records if self._retains(record)]
        if kept and len(kept) == len(records):
            return batch.content
        return self._without_records(header, kept)

    def _without_records(self, header: BatchHeader, kept: Sequence[RecordTuple]) -> bytes:
        """Return a batch that lost records; empty bytes if nothing of it must stay."""
        if kept or header.last_offset in self._producers_last:
            return _encode(header, kept)
        return b""

    def _retains(self, record: RecordTuple) -> bool:
        offset, _, key, value, _ = record
        if key is None or self._latest.get(key, offset) > offset:
            return False
        return value is not None or offset >= self._tombstones_end


def _latest_offsets(
    plan: CompactionPlan, keys_max: int, read: _Read, transactions: TransactionFilter
) -> tuple[dict[bytes, int], int]:
    """Return each key's last offset since the last compaction, and the end of the scanned range.

    Before ``cleaned_to`` each key occurs once, so only later records can supersede a record. Those
    of aborted transactions supersede none.
    """
    latest, cleaned_to = dict[bytes, int](), plan.progress.cleaned_to
    for segment in plan.segments:
        if segment.end_offset <= cleaned_to:
            continue
        for batch in read(segment):
            header = batch.header
            if header.is_control or header.last_offset < cleaned_to:
                continue
            if transactions.is_aborted(header):
                continue
            if latest and len(latest) + header.record_count > keys_max:
                return latest, header.base_offset
            with suppress(UnreadableBatchError):
                for offset, _, key, _, _ in decode_batch(batch):
                    if key is not None:
                        latest[key] = offset
    return latest, plan.end_offset


def _groups(plan: CompactionPlan) -> Iterator[list[CleanableSegment]]:
    """Group neighbouring segments whose total size fits one segment."""
    bytes_max = min(plan.config.segment_bytes, _GROUP_BYTES_MAX)
    group, size = list[CleanableSegment](), 0
    for segment in plan.segments:
        records = segment.end_offset - (group[0].base_offset if group else 0)
        if group and (size + segment.size > bytes_max or records > RELATIVE_OFFSET_MAX):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    yield group


def _rewrite(
    disk: Disk,
    plan: CompactionPlan,
    group: Sequence[CleanableSegment],
    choice: _RecordFilter,
    read: _Read,
) -> CompactedSegment:
    """Write a group's retained records to one segment, durably."""
    base_offset, size, aborted = group[0].base_offset, 0, AbortedIndex()
    path = segment_file(plan.directory, base_offset, LOG_SUFFIX) + CLEANED_SUFFIX
    indexes = SegmentIndexes(base_offset, plan.config.index_interval_bytes)
    for suffix in (*_NEW_SUFFIXES, TXN_INDEX_SUFFIX):
        disk.remove(segment_file(plan.directory, base_offset, suffix) + CLEANED_SUFFIX)
    for content in _joined(_kept(group, choice, indexes, aborted, read)):
        disk.write(path, size, [content])
        size += len(content)
    indexes.close()
    made = [
        Write(write.path + CLEANED_SUFFIX, 0, write.chunks)
        for write in indexes.writes(plan.directory)
    ]
    if aborted:
        aborted_path = segment_file(plan.directory, base_offset, TXN_INDEX_SUFFIX)
        made.append(Write(aborted_path + CLEANED_SUFFIX, 0, [aborted.encode()]))
    perform_writes(disk, [Write(path, 0, []), *made])
    return CompactedSegment(base_offset, size, aborted)


def _kept(
    group: Sequence[CleanableSegment],
    choice: _RecordFilter,
    indexes: SegmentIndexes,
    aborted: AbortedIndex,
    read: _Read,
) -> Iterator[bytes]:
    """Yield the retained batches and add them to ``indexes`` and ``aborted``."""
    position = 0
    for segment in group:
        for batch in read(segment):
            if content := choice.rewrite(batch):
                header = parse_header(content)
                indexes.add_batches(position, [0], [header.last_offset], [header.max_timestamp_ms])
                if header.is_control and (
                    transaction := choice.transactions.aborted_by(header.base_offset)
                ):
                    aborted.add(transaction)
                position += len(content)
                yield content


def _joined(contents: Iterator[bytes]) -> Iterator[bytes]:
    """Join the bytes into chunks large enough to write one by one."""
    piece = bytearray()
    for content in contents:
        piece += content
        if len(piece) >= _WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _encode(header: BatchHeader, kept: Sequence[RecordTuple]) -> bytes:
    """Encode a batch of fewer records with the same range of offsets and sequence numbers."""
    records = [
        SimpleRecord(key, value, headers, timestamp_ms, offset - header.base_offset)
        for offset, timestamp_ms, key, value, headers in kept
    ]
    return encode_batch(
        records,
        base_offset=header.base_offset,
        compression=header.compression if records else 0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
        is_transactional=header.is_transactional,
        last_offset_delta=header.last_offset_delta,
        append_time_ms=header.max_timestamp_ms if header.is_log_append_time else None,
    )


def _swap(
    plan: CompactionPlan, outputs: Sequence[CompactedSegment], end_offset: int
) -> SegmentSwap:
    """Return the swap that replaces the old files by the new ones."""
    bases = [one.base_offset for one in outputs]
    new = [segment_file("", base, suffix) for base in bases for suffix in _NEW_SUFFIXES]
    old = [
        path
        for segment in plan.segments
        if segment.base_offset not in bases
        for path in segment_files("", segment.base_offset)
    ]
    for one in outputs:
        path = segment_file("", one.base_offset, TXN_INDEX_SUFFIX)
        (new if one.aborted else old).append(path)
    return SegmentSwap(
        renames=[(base_name(path) + CLEANED_SUFFIX, base_name(path)) for path in new],
        removals=[base_name(path) for path in old],
        progress=plan.progress_to(end_offset),
    )


def _batches(
    disk: Disk, plan: CompactionPlan, is_wanted: Callable[[], bool], segment: CleanableSegment
) -> Iterator[StoredBatch]:
    """Yield the batches of a segment and check their offsets, which no checksum covers."""
    due = segment.base_offset
    for batch in read_batches(
        disk, segment_file(plan.directory, segment.base_offset, LOG_SUFFIX), segment.size
    ):
        if not is_wanted():
            raise CompactionCancelledError
        header = batch.header
        if not due <= header.base_offset <= header.last_offset < segment.end_offset:
            reason = f"base offset {header.base_offset} is out of order or outside the segment"
            raise DamagedLogError(batch.path, batch.position, reason)
        due = header.last_offset + 1
        yield batch
