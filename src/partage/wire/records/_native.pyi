from collections.abc import Sequence

from partage.wire.records.columns import AbortedTransactions, BatchScan, RecordColumns, RecordTuple
from partage.wire.types import Buffer

def decode_columns(
    blobs: Buffer | Sequence[Buffer],
    *,
    from_offset: int,
    to_offset: int,
    with_headers: bool,
    verify_crc: bool,
    decompressed_max: int = ...,
    read_committed_aborted: AbortedTransactions | None = None,
    size_max: int = ...,
) -> RecordColumns: ...
def decode_records(
    blobs: Buffer | Sequence[Buffer],
    from_offset: int = 0,
    to_offset: int = ...,
    *,
    verify_crc: bool = True,
    decompressed_max: int = ...,
    read_committed_aborted: AbortedTransactions | None = None,
) -> list[RecordTuple]: ...
def decode_pairs(
    blobs: Buffer | Sequence[Buffer], *, verify_crc: bool = True, decompressed_max: int = ...
) -> list[tuple[bytes | None, bytes | None]]: ...
def uninitialized_buffer(size: int) -> bytearray: ...
def pooled_buffer(size: int) -> memoryview: ...
def check_records(payload: Buffer, count: int) -> None: ...
def scan(
    buf: Buffer,
    pos: int = 0,
    *,
    verify_crc: bool = True,
    offset_min: int = 0,
    batches_max: int | None = None,
) -> BatchScan: ...
def checksums(content: Buffer) -> tuple[int, int]: ...
