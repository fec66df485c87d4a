"""Results of the record decoder: records as columns, and batch headers as columns.

The record columns have the layout of Apache Arrow, in plain buffers of exactly the used size.
``pyarrow.Array.from_buffers`` accepts them without a copy, and this package needs no Arrow. All
numbers are in the machine's byte order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

#: The largest offset; use it to decode to the end.
OFFSET_MAX: Final = 2**63 - 1
#: The largest buffer that int32 offsets can address, in bytes.
BUFFER_MAX: Final = 2**31 - 1
#: The smallest possible record: seven fields of one byte each.
RECORD_SIZE_MIN: Final = 7

Bytes: TypeAlias = bytes | bytearray | memoryview

#: The headers of a record. Invalid UTF-8 in keys becomes replacement characters.
HeaderTuples: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: offset, timestamp in ms, key, value, headers
RecordTuple: TypeAlias = tuple[int, int, bytes | None, bytes | None, HeaderTuples]

#: Producer id and first offset of each aborted transaction in a Fetch response.
AbortedTransactions: TypeAlias = Sequence[tuple[int, int]]


class BinaryBuffers(msgspec.Struct, frozen=True):
    """The buffers of an Arrow ``binary`` or ``utf8`` column.

    ``validity`` has one bit per row, lowest bit first, 0 for null. It is None if no row is null.
    ``offsets`` are int32, one more than rows.
    """

    null_count: int
    validity: Bytes | None
    offsets: Bytes
    data: Bytes


class HeaderColumns(msgspec.Struct, frozen=True):
    """An Arrow ``list<struct<key: utf8, value: binary>>`` column of record headers.

    ``offsets`` are int32 positions in key and value, one more than records. ``count`` is the total
    number of headers. Invalid UTF-8 in keys becomes replacement characters.
    """

    count: int
    offsets: Bytes
    key: BinaryBuffers
    value: BinaryBuffers


class RecordColumns(msgspec.Struct, frozen=True):
    """The data records of a fetch, one row each.

    Attributes:
        next_offset: Offset of the next fetch: after the last batch read, including control batches
            and aborted ones, but not beyond the requested range. If a batch begins after the range,
            the end of the range. If a record did not fit, the offset of that record.
        offset: int64.
        timestamp_us: int64, **microseconds** since the epoch, limited to the range of 64 bits.
        timestamp_type: int32, 0 for the producer's time, 1 for the broker's.
    """

    count: int
    next_offset: int
    key: BinaryBuffers
    value: BinaryBuffers
    offset: Bytes
    timestamp_us: Bytes
    timestamp_type: Bytes
    headers: HeaderColumns | None


#: The reason why a scan ended. "end": at the end of the buffer. "incomplete": a batch extends
#: beyond the buffer, or fewer bytes than a header are left. "full": ``batches_max`` was reached.
#: The other reasons name the invalid field of the batch at ``BatchScan.stop``: its magic, its
#: length, its checksum, its base offset (negative or lower than expected), or its record count.
ScanReason: TypeAlias = Literal[
    "end", "incomplete", "full", "magic", "length", "crc", "order", "count"
]


class BatchScan(msgspec.Struct, frozen=True):
    """The headers of complete and valid batches, one row each, and the reason why the scan ended.

    ``position`` is the first byte of a batch in the buffer, and ``stop`` that of the first batch
    not in the columns. The other columns are as in `BatchHeader`.
    """

    position: array[int]
    base_offset: array[int]
    last_offset: array[int]
    max_timestamp_ms: array[int]
    producer_id: array[int]
    producer_epoch: array[int]
    base_sequence: array[int]
    record_count: array[int]
    attributes: array[int]
    leader_epoch: array[int]
    stop: int
    reason: ScanReason

    @property
    def count(self) -> int:
        """Number of batches in the columns."""
        return len(self.position)


#: The array type codes of the columns of a scan, in order.
SCAN_TYPECODES: Final = "qqqqqhiihi"
