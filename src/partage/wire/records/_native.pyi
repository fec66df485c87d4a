from collections.abc import Sequence

from partage.wire.records.columns import Aborted, Columns, RecordTuple, Scan
from partage.wire.types import Buffer

def decode_columns(
    blobs: Buffer | Sequence[Buffer],
    *,
    from_offset: int,
    to_offset: int,
    with_headers: bool,
    verify_crc: bool,
    decompressed_max: int = ...,
    read_committed_aborted: Aborted | None = None,
    size_max: int = ...,
) -> Columns: ...
def decode_records(
    blobs: Buffer | Sequence[Buffer],
    from_offset: int = 0,
    to_offset: int = ...,
    *,
    verify_crc: bool = True,
    decompressed_max: int = ...,
    read_committed_aborted: Aborted | None = None,
) -> list[RecordTuple]: ...
def decode_pairs(
    blobs: Buffer | Sequence[Buffer], *, verify_crc: bool = True, decompressed_max: int = ...
) -> list[tuple[bytes | None, bytes | None]]: ...
def unfilled(size: int) -> bytearray: ...
def room(size: int) -> memoryview: ...
def check_records(payload: Buffer, count: int) -> None: ...
def scan(
    buf: Buffer,
    pos: int = 0,
    *,
    verify_crc: bool = True,
    offset_min: int = 0,
    batches_max: int | None = None,
) -> Scan: ...
def checksums(held: Buffer) -> tuple[int, int]: ...
