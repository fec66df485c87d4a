"""The record decoder in pure Python: the reference, and the fallback where no compiler exists.

It is optimized for the interpreter. One loop reads records into parallel lists without a call per
field. Reads of single bytes rely on IndexError at the end of a batch. Lengths are compared with the
bytes left, because a slice would be shortened silently. `_native` implements the same contract in
Cython. The same tests and the same fuzzer check both.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from partage.wire.records.checksum import crc32c
from partage.wire.records.columns import (
    BUFFER_MAX,
    OFFSET_MAX,
    RECORD_SIZE_MIN,
    SCAN_TYPECODES,
    AbortedTransactions,
    BatchScan,
    RecordColumns,
    RecordTuple,
    ScanReason,
)
from partage.wire.records.compression import DECOMPRESSED_MAX, decompress
from partage.wire.records.rows import RecordRows
from partage.wire.types import Buffer

ABORT: Final = b"\x00\x00"  # the marker type in a transaction marker's key, after its version


def decode_columns(
    blobs: Buffer | Sequence[Buffer],
    *,
    from_offset: int,
    to_offset: int,
    with_headers: bool,
    verify_crc: bool,
    decompressed_max: int = DECOMPRESSED_MAX,
    read_committed_aborted: AbortedTransactions | None = None,
    size_max: int = BUFFER_MAX,
) -> RecordColumns:
    """Decode the data records with ``from_offset <= offset < to_offset`` in the batches of a fetch.

    Skips control batches. A malformed batch ends the result before it, unless it is the first, so
    records before it are not lost. The call that begins with it raises.

    Args:
        blobs: One buffer of batches, or several in order. An incomplete batch at the end of a
            buffer is ignored.
        with_headers: Decode record headers. If False, they are not checked either.
        verify_crc: Verify the checksum of each batch.
        decompressed_max: Limit of the decompressed size of one batch, in bytes.
        read_committed_aborted: Aborted transactions of the fetch response. Their records are
            skipped (KIP-98). None reads uncommitted records.
        size_max: Limit of the size of all returned records, in bytes. At least one record is
            returned.

    Raises:
        MalformedError: The first batch is invalid or cannot be decompressed.
    """
    rows = RecordRows(from_offset, to_offset, min(size_max, BUFFER_MAX), with_headers=with_headers)
    taken = 0
    try:
        for header, payload in _batches(
            blobs, from_offset, to_offset, verify_crc, decompressed_max, read_committed_aborted
        ):
            if payload is not None and rows.read_batch(header, payload):
                break
            taken = len(rows.offsets)
            rows.next_offset = max(rows.next_offset, min(header.next_offset, to_offset))
    except MalformedError:
        if rows.next_offset == from_offset:
            raise
        rows.truncate(taken)
    return rows.to_columns()


def decode_records(
    blobs: Buffer | Sequence[Buffer],
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    *,
    verify_crc: bool = True,
    decompressed_max: int = DECOMPRESSED_MAX,
    read_committed_aborted: AbortedTransactions | None = None,
) -> list[RecordTuple]:
    """Decode the same records as `decode_columns`, each as a tuple. Timestamps are in ms.

    Raises:
        MalformedError: A batch is invalid or cannot be decompressed.
    """
    rows = RecordRows(from_offset, to_offset, OFFSET_MAX, with_headers=True)
    for header, payload in _batches(
        blobs, from_offset, to_offset, verify_crc, decompressed_max, read_committed_aborted
    ):
        if payload is not None:
            rows.read_batch(header, payload)
    return list(
        zip(rows.offsets, rows.timestamps_ms, rows.keys, rows.values, rows.headers, strict=True)
    )


def decode_pairs(
    blobs: Buffer | Sequence[Buffer],
    *,
    verify_crc: bool = True,
    decompressed_max: int = DECOMPRESSED_MAX,
) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of every data record. Record headers are not checked.

    Raises:
        MalformedError: A batch is invalid or cannot be decompressed.
    """
    rows = RecordRows(0, OFFSET_MAX, OFFSET_MAX, with_headers=False)
    for header, payload in _batches(blobs, 0, OFFSET_MAX, verify_crc, decompressed_max):
        if payload is not None:
            rows.read_batch(header, payload)
    return list(zip(rows.keys, rows.values, strict=True))


def uninitialized_buffer(size: int) -> bytearray:
    """Return a buffer of ``size`` bytes, all of which the caller will overwrite.

    Its content is undefined, because the native version does not fill it with zeros.
    """
    return bytearray(size)


def pooled_buffer(size: int) -> memoryview:
    """Return a short-lived buffer with undefined content; the native version reuses memory."""
    return memoryview(bytearray(size))


def check_records(payload: Buffer, count: int) -> None:
    """Check that ``payload`` is ``count`` records with offset deltas 0, 1, 2, ...

    Every length must fit the bytes exactly, including those of headers.

    Raises:
        MalformedError: The message names the invalid record.
    """
    if count > len(payload) // RECORD_SIZE_MIN:
        raise MalformedError(f"{len(payload)} bytes are too short for {count} records")
    rows = RecordRows(0, OFFSET_MAX, OFFSET_MAX, with_headers=True)
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, max(0, count - 1), 0, 0, -1, -1, -1, count)
    rows.read_batch(header, bytes(payload))
    for index, delta in enumerate(rows.offsets):
        if delta != index:
            raise MalformedError(f"record {index} of {count} has an offset out of order")


def scan(
    buf: Buffer,
    pos: int = 0,
    *,
    verify_crc: bool = True,
    offset_min: int = 0,
    batches_max: int | None = None,
) -> BatchScan:
    """Return the headers of batches from ``pos`` on, up to the first incomplete or invalid one.

    Args:
        pos: Position of the first batch.
        verify_crc: Verify the checksum of each batch.
        offset_min: Smallest valid base offset of the first batch. Later base offsets must rise.
        batches_max: Stop after this many batches. The memory needed is 52 bytes for each batch.

    Raises:
        ValueError: ``pos`` is outside the buffer.
    """
    view = memoryview(buf).cast("B")
    end = len(view)
    if not 0 <= pos <= end:
        raise ValueError(f"position {pos} is outside a buffer of {end} bytes")
    columns = [array(code) for code in SCAN_TYPECODES]
    add = [column.append for column in columns]
    add_pos, add_base, add_last, add_stamp, add_id, add_epoch, add_sequence, *more = add
    add_count, add_attributes, add_leader_epoch = more
    room = end if batches_max is None else max(0, batches_max)
    reason: ScanReason
    while True:
        header = _read_batch(view, pos, end, verify_crc)
        if isinstance(header, str):
            reason = header
            break
        base, length, leader_epoch, _, _, attributes, delta, _, stamp, *producer, count = header
        if base < offset_min:
            reason = "order"
            break
        if not room:
            reason = "full"
            break
        room -= 1
        add_pos(pos)
        add_base(base)
        add_last(base + delta)
        add_stamp(stamp)
        add_id(producer[0])
        add_epoch(producer[1])
        add_sequence(producer[2])
        add_count(count)
        add_attributes(attributes)
        add_leader_epoch(leader_epoch)
        offset_min = base + delta + 1
        pos += length + LENGTH_OVERHEAD
    return BatchScan(*columns, pos, reason)  # type: ignore[arg-type, call-arg]  # ten columns


#: A batch header as plain tuple, in the order of `BatchHeader`, which takes three times as long to
#: create.
_Fields: TypeAlias = tuple[int, ...]


def _read_batch(view: memoryview, pos: int, end: int, verify_crc: bool) -> _Fields | ScanReason:
    """Return the header of the batch at ``pos``, or the reason why it is invalid."""
    left = end - pos
    if left < HEADER_SIZE:
        return "incomplete" if left else "end"
    fields = HEADER.unpack_from(view, pos)
    base, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = fields
    if magic != MAGIC:
        return "magic"
    size = length + LENGTH_OVERHEAD
    if size < HEADER_SIZE:
        return "length"
    if size > left:
        return "incomplete"
    if verify_crc and crc32c(view[pos + CRC_FROM : pos + size]) != crc:
        return "crc"
    if last_delta < 0 or not 0 <= count <= last_delta + 1:
        return "count"
    if not attributes & 0x07 and count > (size - HEADER_SIZE) // RECORD_SIZE_MIN:
        return "count"
    if not 0 <= base < OFFSET_MAX - last_delta:
        return "order"
    return fields


def _batches(
    blobs: Buffer | Sequence[Buffer],
    from_offset: int,
    to_offset: int,
    verify_crc: bool,
    decompressed_max: int,
    aborted: AbortedTransactions | None = None,
) -> Iterator[tuple[BatchHeader, bytes | None]]:
    """Yield the batches that begin before ``to_offset``, each with its decompressed records.

    None stands for records to skip, such as those of the first batch after ``to_offset``.

    Raises:
        MalformedError: A batch is invalid; raised when the iteration reaches it.
    """
    transactions = None if aborted is None else _AbortedTransactionFilter(aborted)
    for blob in (blobs,) if isinstance(blobs, bytes | bytearray | memoryview) else blobs:
        view = memoryview(blob).cast("B")
        pos, end = 0, len(view)
        while True:
            fields = _read_batch(view, pos, end, verify_crc)
            if isinstance(fields, str):
                if fields in ("end", "incomplete"):
                    break
                raise MalformedError(f"record batch at byte {pos} is invalid: {fields}")
            header = BatchHeader._make(fields)
            if header.base_offset >= to_offset:
                yield header, None
                return
            stop = pos + header.length + LENGTH_OVERHEAD
            is_control = header.attributes & 0x20
            wanted = (
                not is_control
                and header.record_count > 0
                and header.base_offset + header.last_offset_delta >= from_offset
            )
            if transactions is not None:
                transactions.start_reached(header)
                if is_control:
                    transactions.read_marker(
                        header, _unpack_records(header, view, pos, stop, decompressed_max)
                    )
                elif transactions.is_aborted(header):
                    wanted = False
            yield (
                header,
                _unpack_records(header, view, pos, stop, decompressed_max) if wanted else None,
            )
            pos = stop


def _unpack_records(
    header: BatchHeader, view: memoryview, pos: int, stop: int, size_max: int
) -> bytes:
    """Return the decompressed records of the batch between ``pos`` and ``stop``."""
    stored = view[pos + HEADER_SIZE : stop]
    codec = header.attributes & 0x07
    if not codec:
        return bytes(stored)
    payload = decompress(codec, stored, size_max)
    if header.record_count > len(payload) // RECORD_SIZE_MIN:
        raise MalformedError(f"record batch at byte {pos} is invalid: count")
    return payload


class _AbortedTransactionFilter:
    """Recognizes batches of aborted transactions, as a consumer must (KIP-98).

    A producer's batches are skipped from the first offset of its aborted transaction up to the
    abort marker.
    """

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._producers: set[int] = set()

    def start_reached(self, header: BatchHeader) -> None:
        """Start the transactions whose first offset was reached; call it for every batch."""
        while self._ahead and self._ahead[-1][0] < header.next_offset:
            self._producers.add(self._ahead.pop()[1])

    def is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and header.producer_id in self._producers

    def read_marker(self, header: BatchHeader, payload: bytes) -> None:
        """Read a control batch; an abort marker ends its producer's transaction."""
        if not header.record_count:
            return
        rows = RecordRows(0, OFFSET_MAX, OFFSET_MAX, with_headers=False)
        rows.read_batch(header._replace(record_count=1), payload, whole=False)
        key = rows.keys[0]
        if key is None or len(key) < 4:
            raise MalformedError(f"control batch at offset {header.base_offset} has no marker")
        if key[2:4] == ABORT:
            self._producers.discard(header.producer_id)
