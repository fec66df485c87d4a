"""The heavy part of a compaction: copying what stays into new files. For a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from partage.log.compaction import ClosedSegment, Compacted, Plan
from partage.log.damage import DamagedLog, UnreadableBatch
from partage.log.disk import Disk
from partage.log.indexing import Indexes
from partage.log.layout import (
    CLEANED,
    INDEX,
    LOG,
    TIME_INDEX,
    file_of,
    files_of_segment,
    name_of,
)
from partage.log.outcomes import Write
from partage.log.performing import perform, perform_step
from partage.log.reading import BatchRead, batches, records_of
from partage.log.segment import RELATIVE_MAX
from partage.log.swapping import Swap, begin_swap, resume_swap
from partage.wire.records.batch import BatchHeader, parse_header
from partage.wire.records.columns import RecordTuple
from partage.wire.records.encode import Record, encode_batch

KEYS_MAX: Final = 1_000_000  # held in memory at once; what is beyond waits for the next round
_GROUP_BYTES: Final = 1 << 30
_WRITE_BYTES: Final = 1 << 20
_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX)

_Read = Callable[[ClosedSegment], Iterator[BatchRead]]


class GivenUp(Exception):
    """A compaction that was not wanted any more; nothing has changed."""


def compact(
    disk: Disk,
    plan: Plan,
    *,
    keys_max: int = KEYS_MAX,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Compacted:
    """Do a planned compaction up to the point where it only needs to be swapped in.

    ``is_wanted`` is asked at every batch, so that nobody has to wait long for the end.

    Raises:
        DamagedLog: a segment is not what was written; nothing has changed.
        GivenUp: it was not wanted any more.
    """
    # Else the next swap would take its place, and what it has to remove would be there again.
    resume_swap(disk, plan.directory)
    perform_step(disk, plan.checkpoint)
    read = partial(_batches, disk, plan, is_wanted)
    latest, end_offset = _latest_offsets(plan, keys_max, read)
    choice = _Choice(plan, latest, end_offset)
    outputs = [_rewrite(disk, plan, group, choice, read) for group in _groups(plan)]
    swap = _swap(plan, [base_offset for base_offset, _ in outputs], end_offset)
    begin_swap(disk, plan.directory, swap)
    return Compacted(plan=plan, segments=outputs, swap=swap)


class _Choice:
    """Which records of a batch stay."""

    def __init__(self, plan: Plan, latest: Mapping[bytes, int], end_offset: int) -> None:
        self._latest = latest
        self._end_offset = end_offset
        self._tombstones_end = plan.tombstones_end
        self._producers_last = plan.producers_last

    def rewritten(self, batch: BatchRead) -> bytes:
        """The batch with the records that stay; nothing if none does."""
        header = batch.header
        if header.is_control or header.base_offset >= self._end_offset:
            return batch.content
        try:
            records = records_of(batch)
        except UnreadableBatch:
            return batch.content  # it may be of a time when the topic was not compacted
        kept = [record for record in records if self._stays(record)]
        if kept and len(kept) == len(records):
            return batch.content
        if kept or header.last_offset in self._producers_last:
            return _encode(header, kept)
        return b""

    def _stays(self, record: RecordTuple) -> bool:
        offset, _, key, value, _ = record
        if key is None or self._latest.get(key, offset) > offset:
            return False
        return value is not None or offset >= self._tombstones_end


def _latest_offsets(plan: Plan, keys_max: int, read: _Read) -> tuple[dict[bytes, int], int]:
    """The last offset of each key that came since the last compaction, and how far that goes.

    Before that each key stands there once, so only these can make another superfluous.
    """
    latest, cleaned_to = dict[bytes, int](), plan.progress.cleaned_to
    for segment in plan.segments:
        if segment.end_offset <= cleaned_to:
            continue
        for batch in read(segment):
            header = batch.header
            if header.is_control or header.last_offset < cleaned_to:
                continue
            if latest and len(latest) + header.record_count > keys_max:
                return latest, header.base_offset
            with suppress(UnreadableBatch):
                for offset, _, key, _, _ in records_of(batch):
                    if key is not None:
                        latest[key] = offset
    return latest, plan.end_offset


def _groups(plan: Plan) -> Iterator[list[ClosedSegment]]:
    """Neighbours that together are no larger than one segment may be."""
    bytes_max = min(plan.config.segment_bytes, _GROUP_BYTES)
    group, size = list[ClosedSegment](), 0
    for segment in plan.segments:
        records = segment.end_offset - (group[0].base_offset if group else 0)
        if group and (size + segment.size > bytes_max or records > RELATIVE_MAX):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    yield group


def _rewrite(
    disk: Disk, plan: Plan, group: Sequence[ClosedSegment], choice: _Choice, read: _Read
) -> tuple[int, int]:
    """Write what stays of some segments to one, durably; its base offset and its size."""
    base_offset, size = group[0].base_offset, 0
    path = file_of(plan.directory, base_offset, LOG) + CLEANED
    indexes = Indexes(base_offset, plan.config.index_interval_bytes)
    for suffix in _SUFFIXES:
        disk.remove(file_of(plan.directory, base_offset, suffix) + CLEANED)
    for content in _joined(_kept(group, choice, indexes, read)):
        disk.write(path, size, [content])
        size += len(content)
    indexes.close()
    made = [
        Write(write.path + CLEANED, 0, write.chunks) for write in indexes.writes(plan.directory)
    ]
    perform(disk, [Write(path, 0, []), *made])
    return base_offset, size


def _kept(
    group: Sequence[ClosedSegment], choice: _Choice, indexes: Indexes, read: _Read
) -> Iterator[bytes]:
    """The batches that stay, noted in ``indexes`` as they come."""
    position = 0
    for segment in group:
        for batch in read(segment):
            if content := choice.rewritten(batch):
                header = parse_header(content)
                indexes.add(position, [0], [header.last_offset], [header.max_timestamp_ms])
                position += len(content)
                yield content


def _joined(contents: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces large enough to be written one by one."""
    piece = bytearray()
    for content in contents:
        piece += content
        if len(piece) >= _WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _encode(header: BatchHeader, kept: Sequence[RecordTuple]) -> bytes:
    """A batch of fewer records that stands for the same offsets and sequence numbers."""
    records = [
        Record(key, value, headers, timestamp_ms, offset - header.base_offset)
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


def _swap(plan: Plan, outputs: Sequence[int], end_offset: int) -> Swap:
    """What puts the new files in the place of the old ones."""
    new = [file_of("", base, suffix) for base in outputs for suffix in _SUFFIXES]
    old = [
        path
        for segment in plan.segments
        if segment.base_offset not in outputs
        for path in files_of_segment("", segment.base_offset)
    ]
    return Swap(
        renames=[(name_of(path) + CLEANED, name_of(path)) for path in new],
        removals=[name_of(path) for path in old],
        progress=plan.progress_to(end_offset),
    )


def _batches(
    disk: Disk, plan: Plan, is_wanted: Callable[[], bool], segment: ClosedSegment
) -> Iterator[BatchRead]:
    """The batches of a segment; their offsets, which no checksum covers, must be its own."""
    due = segment.base_offset
    for batch in batches(disk, file_of(plan.directory, segment.base_offset, LOG), segment.size):
        if not is_wanted():
            raise GivenUp
        header = batch.header
        if not due <= header.base_offset <= header.last_offset < segment.end_offset:
            reason = f"offset {header.base_offset} is none of the segment's that may follow"
            raise DamagedLog(batch.path, batch.position, reason)
        due = header.last_offset + 1
        yield batch
