"""What the decoder hands back: records as columns, and batches as columns.

The record columns are laid out as Apache Arrow has them, in plain buffers of exactly the used
size, so that ``pyarrow.Array.from_buffers`` takes them without a copy and without this floor
knowing Arrow. All numbers are in the machine's byte order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

#: The largest offset there can be: decode "to the end".
OFFSET_MAX: Final = 2**63 - 1
#: The largest buffer that int32 offsets can point into, in bytes.
BUFFER_MAX: Final = 2**31 - 1
#: The smallest record there can be: seven fields of one byte each.
RECORD_SIZE_MIN: Final = 7

Bytes: TypeAlias = bytes | bytearray | memoryview

#: A record's headers: keys that are no UTF-8 have replacement characters in them.
HeaderTuples: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: offset, timestamp in ms, key, value, headers
RecordTuple: TypeAlias = tuple[int, int, bytes | None, bytes | None, HeaderTuples]

#: Producer id and first offset of an aborted transaction, as a Fetch response names it.
AbortedTransactions: TypeAlias = Sequence[tuple[int, int]]


class BinaryBuffers(msgspec.Struct, frozen=True):
    """An Arrow ``binary`` or ``utf8`` column.

    ``validity`` has a bit a row, lowest bit first, 0 for null, and is None where nothing is null.
    ``offsets`` are int32, one more than rows.
    """

    null_count: int
    validity: Bytes | None
    offsets: Bytes
    data: Bytes


class HeaderColumns(msgspec.Struct, frozen=True):
    """An Arrow ``list<struct<key: utf8, value: binary>>`` column.

    ``offsets`` are int32 positions in key and value, one more than records; ``count`` is how many
    headers there are in all. Keys that are no UTF-8 have replacement characters in them.
    """

    count: int
    offsets: Bytes
    key: BinaryBuffers
    value: BinaryBuffers


class RecordColumns(msgspec.Struct, frozen=True):
    """The data records of a fetch, one row each.

    ``next_offset`` is where reading goes on: after the last batch looked at (control batches and
    aborted ones count), but not beyond the asked range; at the first record left out if not all
    did fit. Offsets are int64. Timestamps are int64 **microseconds** since the epoch, those that
    do not fit set to the nearest that does. ``timestamp_type`` is int32: 0 the producer's time,
    1 the broker's.
    """

    count: int
    next_offset: int
    key: BinaryBuffers
    value: BinaryBuffers
    offset: Bytes
    timestamp_us: Bytes
    timestamp_type: Bytes
    headers: HeaderColumns | None


#: Why a scan ended. "end": with the buffer; "incomplete": a batch reaches beyond it, or it has
#: fewer bytes left than a header; "full": ``batches_max`` reached; the others name what is not
#: right in the batch at ``Scan.stop``: its format version, its length field, its checksum, its
#: base offset (negative or lower than the one due), or its record count.
ScanReason: TypeAlias = Literal[
    "end", "incomplete", "full", "magic", "length", "crc", "order", "count"
]


class BatchScan(msgspec.Struct, frozen=True):
    """The headers of whole and sound batches, one row each, and where and why the walk ended.

    ``position`` is the batch's first byte in the buffer and ``stop`` that of the first batch not
    in the columns; the other columns are as in `BatchHeader`.
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
        """How many batches there are in the columns."""
        return len(self.position)


#: The array type codes of a scan's columns, in order.
SCAN_TYPECODES: Final = "qqqqqhiihi"
