"""Scan of segment files, with checksums, after an unclean shutdown."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from partage.log.disk import Buffer, Disk
from partage.log.producer_state import CompletedTransaction, ProducerStateManager
from partage.log.segments.aborted_index import AbortedIndex, AbortedTransaction
from partage.log.segments.batch_reader import SCAN_READ_BYTES, read_headers
from partage.log.segments.segment import ActiveSegment, Segment
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import NO_PRODUCER, BatchHeader, parse_header
from partage.wire.records.columns import BatchScan, ScanReason
from partage.wire.records.decoder import scan
from partage.wire.records.transaction_marker import decode_marker

CHUNK_BYTES: Final = 8 << 20
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

_FAULTS: Final[dict[ScanReason, str]] = {
    "incomplete": "the last batch is cut off",
    "magic": "the bytes are not a record batch",
    "length": "the length of the batch is invalid",
    "crc": "the batch does not match its checksum",
    "order": "the base offset of the batch is not the expected one",
    "count": "the record count of the batch is invalid",
}


class BatchFault(NamedTuple):
    """The first byte of a file that is not part of a complete and valid batch, and the reason."""

    position: int
    reason: str


def find_batch_fault(batches: Buffer) -> BatchFault | None:
    """Return the first fault in complete batches read from a log; None if all are valid."""
    found = scan(batches)
    return None if found.reason == "end" else BatchFault(found.stop, _FAULTS[found.reason])


def scan_segment(
    disk: Disk,
    segment: ActiveSegment,
    file_size: int,
    producers: ProducerStateManager,
    now_ms: int,
    *,
    dense: bool,
) -> tuple[int, BatchFault | None]:
    """Fill ``segment`` and ``producers`` from the valid batches of the segment's file.

    Args:
        file_size: Size of the segment file, in bytes.
        dense: Require that each batch begins where the previous one ended, as is true before any
            compaction.

    Returns:
        The offset after the valid batches, and the fault that ended them before the end of the
        file, if any.
    """
    offset, read_bytes = segment.base_offset, CHUNK_BYTES
    while segment.size < file_size:
        chunk = disk.read(segment.path, segment.size, min(read_bytes, file_size - segment.size))
        is_last = segment.size + len(chunk) >= file_size
        found = _scan(chunk, offset, dense)
        if found.count:
            segment.add_batches(
                found.position, found.last_offset, found.max_timestamp_ms, found.stop
            )
            _remember(producers, segment, chunk, found, now_ms)
            offset = found.last_offset[-1] + 1
        elif found.reason == "incomplete" and not is_last:
            # A batch larger than a chunk, if its length is valid.
            read_bytes = parse_header(chunk).size
            if read_bytes > file_size - segment.size:
                return offset, BatchFault(
                    segment.size, "the batch extends beyond the end of the file"
                )
        if found.reason != "end" and (is_last or found.reason != "incomplete"):
            return offset, BatchFault(segment.size, _FAULTS[found.reason])
    return offset, None


def replay_producers(
    disk: Disk, segment: Segment, producers: ProducerStateManager, now_ms: int
) -> AbortedIndex:
    """Advance ``producers`` from a closed segment's base to its end; reads all its headers.

    Returns:
        The transactions that markers in the segment abort.
    """
    aborted = AbortedIndex()
    for position, header in read_headers(disk, segment.path, 0, segment.size, SCAN_READ_BYTES):
        if header.is_control:
            content = disk.read(segment.path, position, header.size)
            completed = _replay_marker(producers, header, content, now_ms)
            if completed and completed.is_aborted:
                aborted.add(AbortedTransaction.from_completed(completed))
            continue
        producers.record_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            is_transactional=header.is_transactional,
            seen_ms=now_ms,
        )
    return aborted


def _remember(
    producers: ProducerStateManager,
    segment: ActiveSegment,
    chunk: bytes,
    found: BatchScan,
    now_ms: int,
) -> None:
    """Record the producers of scanned batches, and the transactions that they abort."""
    if max(found.producer_id) == NO_PRODUCER:
        return
    rows = zip(
        found.producer_id,
        found.producer_epoch,
        found.base_sequence,
        found.base_offset,
        found.last_offset,
        found.attributes,
        found.position,
        strict=True,
    )
    for *batch, attributes, position in rows:
        if attributes & _CONTROL:
            header = parse_header(chunk, position)
            content = memoryview(chunk)[position : position + header.size]
            completed = _replay_marker(producers, header, content, now_ms)
            if completed and completed.is_aborted:
                segment.add_aborted(AbortedTransaction.from_completed(completed))
            continue
        is_transactional = bool(attributes & _TRANSACTIONAL)
        producers.record_batch(*batch, is_transactional=is_transactional, seen_ms=now_ms)


def _replay_marker(
    producers: ProducerStateManager, header: BatchHeader, content: Buffer, now_ms: int
) -> CompletedTransaction | None:
    """Record the marker in a control batch; ignore other control batches."""
    try:
        marker = decode_marker(header, content)
    except MalformedError:
        return None
    if marker is None:
        return None
    return producers.record_marker(
        header.producer_id, header.producer_epoch, marker, header.base_offset, seen_ms=now_ms
    )


def _scan(chunk: bytes, offset: int, dense: bool) -> BatchScan:
    """Return the valid batches at the start of ``chunk``; with ``dense``, up to the first gap."""
    found = scan(chunk, offset_min=offset)
    gap = _first_gap(found, offset) if dense else None
    if gap is None:
        return found
    before = memoryview(chunk)[: found.position[gap]]
    return replace(scan(before, offset_min=offset), reason="order")


def _first_gap(found: BatchScan, offset: int) -> int | None:
    """Return the row of the first batch that does not begin where the previous one ended."""
    last_offsets, base_offsets = found.last_offset, found.base_offset
    records = sum(last_offsets) - sum(base_offsets) + found.count
    if not found.count or records == last_offsets[-1] + 1 - offset:
        return None  # offsets rise, so a count that matches the range leaves no gap
    due = offset
    for row, base_offset in enumerate(base_offsets):
        if base_offset != due:
            return row
        due = last_offsets[row] + 1
    return None
