"""Compression of batches, and decompression within a size limit.

A few kilobytes can decompress to gigabytes, so no declared size is trusted. The block headers of
the frames are read first. They limit the result to what the blocks can hold. The decoder then
writes into a buffer of that size or of ``size_max``, whichever is smaller.

Gzip uses ``zlib``, whose decoder accepts a limit itself. The other codecs use ``cramjam``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from partage.wire.primitives import MalformedError, decode_uvarint
from partage.wire.records.batch import Compression
from partage.wire.types import Buffer

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_BE32 = struct.Struct(">I")

#: Default limit of the decompressed size of one batch, in bytes.
DECOMPRESSED_MAX: Final = 128 << 20

GZIP_WINDOW_BITS: Final = 31  # selects gzip's header and trailer and a 32 KiB window in zlib
GZIP_LEVEL: Final = 6
ZSTD_LEVEL: Final = 3
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
XERIAL_BLOCK_SIZE: Final = 32 << 10
SNAPPY_RATIO_MAX: Final = 22  # the longest copy: three bytes encode 64
LZ4_MAGIC: Final = 0x184D2204
LZ4_RATIO_MAX: Final = 255  # a length byte adds at most 255
#: Independent blocks of 64 KiB, no checksums except the header checksum, which is the last byte.
LZ4_HEADER: Final = _U32.pack(LZ4_MAGIC) + b"\x60\x40\x82"
LZ4_BLOCK_SIZE: Final = 64 << 10
LZ4_END: Final = bytes(4)
ZSTD_MAGIC: Final = 0xFD2FB528
ZSTD_BLOCK_MAX: Final = 128 << 10
ZSTD_WINDOW_MIN: Final = 8 << 20  # every decoder must support this size (RFC 8878, 3.1.1.1.2)
SKIPPABLE_MAGIC: Final = 0x184D2A50  # and the next 15 values, in lz4 and zstd alike


def decompress(codec: int, payload: Buffer, size_max: int) -> bytes:
    """Decompress ``payload`` to at most ``size_max`` bytes.

    Reads Snappy both in Java's framing (xerial) and raw, as librdkafka writes it.

    Raises:
        MalformedError: The codec is unknown, the payload is damaged, or it exceeds ``size_max``.
    """
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise MalformedError(f"unknown compression codec {codec}")
    try:
        return unpack(payload, size_max)
    except (_cramjam().DecompressionError, zlib.error, struct.error, IndexError) as error:
        name = Compression(codec).name.lower()
        raise MalformedError(f"{name} payload cannot be decompressed: {error}") from error


def compress(codec: int, payload: Buffer, level: int | None = None) -> bytes:
    """Compress ``payload`` in a form that every Kafka client can read.

    Snappy uses Java's framing. Lz4 is a frame of independent blocks, the only kind that Java
    accepts.

    Args:
        codec: A `Compression`.
        payload: The bytes to compress.
        level: As in Kafka's ``compression.gzip.level`` or ``compression.zstd.level``; None for the
            default of the codec. The other codecs have no levels here.

    Raises:
        ValueError: The codec is unknown.
    """
    pack = _PACK.get(codec)
    if pack is None:
        raise ValueError(f"unknown compression codec {codec}")
    return pack(payload, level)


@cache
def _cramjam() -> Any:
    """Return the package. The import at first use keeps 2 ms out of a broker's start."""
    import cramjam

    return cramjam


def _too_large(size_max: int) -> MalformedError:
    return MalformedError(f"batch decompresses to more than {size_max} bytes")


def _unpack_none(payload: Buffer, size_max: int) -> bytes:
    if len(payload) > size_max:
        raise _too_large(size_max)
    return bytes(payload)


def _unpack_gzip(payload: Buffer, size_max: int) -> bytes:
    stream = zlib.decompressobj(GZIP_WINDOW_BITS)
    # One byte beyond the limit distinguishes a full buffer from an excess.
    unpacked = stream.decompress(payload, size_max + 1)
    if len(unpacked) > size_max:
        raise _too_large(size_max)
    if not stream.eof:
        raise MalformedError("gzip payload is truncated")
    if stream.unused_data:
        raise MalformedError("gzip payload has bytes after its end")
    return unpacked


def _unpack_snappy(payload: Buffer, size_max: int) -> bytes:
    if payload[:8] != XERIAL_MAGIC:
        return bytes(_cramjam().snappy.decompress_raw(_snappy_checked(payload, size_max, size_max)))
    view = memoryview(payload)
    chunks: list[Any] = []
    room = size_max
    pos, end = len(XERIAL_HEADER), len(view)
    if end < pos:
        raise MalformedError("snappy payload is truncated")
    while pos < end:
        (size,) = _BE32.unpack_from(view, pos)
        pos += 4
        if size > end - pos:
            raise MalformedError("snappy payload is truncated")
        block = _snappy_checked(view[pos : pos + size], room, size_max)
        chunks.append(_cramjam().snappy.decompress_raw(block))
        room -= len(chunks[-1])
        pos += size
    return b"".join(chunks)


def _snappy_checked(block: Buffer, room: int, size_max: int) -> Buffer:
    """Return the raw block after a check that its declared length is possible and fits."""
    declared, _ = decode_uvarint(block, 0)
    if declared > room:
        raise _too_large(size_max)
    if declared > SNAPPY_RATIO_MAX * len(block):
        raise MalformedError(
            f"snappy block of {len(block)} bytes declares a content of {declared} bytes"
        )
    return block


def _unpack_lz4(payload: Buffer, size_max: int) -> bytes:
    bound, linked = 0, False
    for block in _lz4_blocks(payload, size_max):
        bound += block.size_max
        linked |= block.linked
    if linked:
        return _into_bounded(_cramjam().lz4.decompress_into, payload, bound, size_max)
    # Kafka's clients write independent blocks. Decompressing them one by one takes a third of the
    # time, because the frame decoder also verifies checksums that the batch's CRC makes redundant.
    view, out = memoryview(payload), bytearray(min(bound, size_max))
    room, used = memoryview(out), 0
    for block in _lz4_blocks(payload, size_max):
        left = len(out) - used
        stored = view[block.start : block.end]
        if block.stored:
            if len(stored) > left:
                raise _too_large(size_max)
            room[used : used + len(stored)] = stored
            used += len(stored)
            continue
        size = min(block.size_max, left)
        try:
            used += _cramjam().lz4.decompress_block_into(
                stored, room[used : used + size], output_len=size
            )
        except _cramjam().DecompressionError as error:
            if left < block.size_max:  # most likely; a damaged block fails in the same way
                raise _too_large(size_max) from error
            raise
    return bytes(room[:used])


def _unpack_zstd(payload: Buffer, size_max: int) -> bytes:
    bound = _zstd_bound(payload, size_max)
    return _into_bounded(_cramjam().zstd.decompress_into, payload, bound, size_max)


def _into_bounded(
    decoder: Callable[[Buffer, bytearray], int], payload: Buffer, bound: int, size_max: int
) -> bytes:
    """Decompress ``payload``, which holds at most ``bound`` bytes."""
    out = bytearray(min(bound, size_max))
    try:
        size = decoder(payload, out)
    except _cramjam().DecompressionError as error:
        # The decoder has no separate error type for a full buffer.
        if bound > size_max and "whole buffer" in str(error):
            raise _too_large(size_max) from error
        raise
    return bytes(out) if size == len(out) else bytes(memoryview(out)[:size])


class _Lz4Block(NamedTuple):
    """Position of a block in the payload, and its largest decompressed size."""

    start: int
    end: int
    size_max: int
    stored: bool  # uncompressed, because compression gained nothing
    linked: bool  # needs the previous block or a dictionary to decompress


def _lz4_blocks(payload: Buffer, size_max: int) -> Iterator[_Lz4Block]:
    """Yield the blocks of the lz4 frames in ``payload``; none extends beyond its end."""
    pos = 0
    end = len(payload)
    if not end:
        raise MalformedError("lz4 payload is empty")
    while pos < end:
        (magic,) = _U32.unpack_from(payload, pos)
        if magic & ~0xF == SKIPPABLE_MAGIC:
            pos += 8 + _U32.unpack_from(payload, pos + 4)[0]
            continue
        flags, code = payload[pos + 4], payload[pos + 5] >> 4 & 7
        if magic != LZ4_MAGIC or flags >> 6 != 1:
            raise MalformedError("lz4 payload is not a frame")
        if code < 4:
            raise MalformedError("lz4 frame has an unknown block size")
        linked = not flags & 0x20 or bool(flags & 0x01)
        block_max = 1 << 8 + 2 * code
        pos += 6
        if flags & 0x08:
            (declared,) = _U64.unpack_from(payload, pos)
            if declared > size_max:
                raise _too_large(size_max)
            pos += 8
        pos += 5 if flags & 0x01 else 1  # the dictionary id and the header checksum
        while True:
            (size,) = _U32.unpack_from(payload, pos)
            pos += 4
            if size == 0:
                break
            stored, size = size >> 31 == 1, size & 0x7FFF_FFFF
            if size > end - pos:
                raise MalformedError("lz4 payload is truncated")
            unpacked_max = size if stored else min(block_max, LZ4_RATIO_MAX * size)
            yield _Lz4Block(pos, pos + size, unpacked_max, stored, linked)
            pos += size + (4 if flags & 0x10 else 0)
        pos += 4 if flags & 0x04 else 0
    if pos > end:
        raise MalformedError("lz4 payload is truncated")


def _zstd_bound(payload: Buffer, size_max: int) -> int:
    """Return the largest possible content of the zstd frames, from their block headers (RFC 8878).

    Refuses a frame whose window, which the decoder allocates, is larger than the result may be.
    """
    bound = pos = 0
    end = len(payload)
    while pos < end:
        (magic,) = _U32.unpack_from(payload, pos)
        pos += 4
        if magic & ~0xF == SKIPPABLE_MAGIC:
            pos += 4 + _U32.unpack_from(payload, pos)[0]
            continue
        if magic != ZSTD_MAGIC:
            raise MalformedError("zstd payload is not a frame")
        descriptor = payload[pos]
        pos += 1
        single_segment = descriptor & 0x20
        window = 0
        if not single_segment:
            base = 1 << 10 + (payload[pos] >> 3)
            window = base + base // 8 * (payload[pos] & 7)
            pos += 1
        pos += (0, 1, 2, 4)[descriptor & 3]  # the dictionary id
        declared, pos = _zstd_content_size(payload, pos, descriptor)
        if declared > size_max - bound:
            raise _too_large(size_max)
        if window > max(size_max, ZSTD_WINDOW_MIN):
            raise MalformedError(f"zstd frame declares a window of {window} bytes")
        frame, last = 0, 0
        while not last:
            block = payload[pos] | payload[pos + 1] << 8 | payload[pos + 2] << 16
            pos += 3
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            frame += ZSTD_BLOCK_MAX if kind == 2 else size
            pos += 1 if kind == 1 else size  # one byte, repeated
        pos += 4 if descriptor & 0x04 else 0  # the content checksum
        bound += min(frame, declared) if declared >= 0 else frame
    if pos > end:
        raise MalformedError("zstd payload is truncated")
    return bound


def _zstd_content_size(payload: Buffer, pos: int, descriptor: int) -> tuple[int, int]:
    """Return the content size declared in a frame header, -1 if none, and the position after it."""
    match descriptor >> 6:
        case 0:
            return (payload[pos], pos + 1) if descriptor & 0x20 else (-1, pos)
        case 1:
            return _U16.unpack_from(payload, pos)[0] + 256, pos + 2
        case 2:
            return _U32.unpack_from(payload, pos)[0], pos + 4
        case _:
            return _U64.unpack_from(payload, pos)[0], pos + 8


def _pack_none(payload: Buffer, level: int | None) -> bytes:
    return bytes(payload)


def _pack_gzip(payload: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(
        GZIP_LEVEL if level is None else level, zlib.DEFLATED, GZIP_WINDOW_BITS
    )
    return stream.compress(payload) + stream.flush()


def _pack_snappy(payload: Buffer, level: int | None) -> bytes:
    view = memoryview(payload)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + XERIAL_BLOCK_SIZE]))
        parts += (_BE32.pack(len(block)), block)
    return b"".join(parts)


def _pack_lz4(payload: Buffer, level: int | None) -> bytes:
    view = memoryview(payload)
    parts: list[Buffer] = [LZ4_HEADER]
    for start in range(0, len(view), LZ4_BLOCK_SIZE):
        chunk = view[start : start + LZ4_BLOCK_SIZE]
        block = bytes(_cramjam().lz4.compress_block(chunk, store_size=False))
        if len(block) < len(chunk):
            parts += (_U32.pack(len(block)), block)
        else:
            parts += (_U32.pack(len(chunk) | 1 << 31), chunk)
    parts.append(LZ4_END)
    return b"".join(parts)


def _pack_zstd(payload: Buffer, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(payload, level=ZSTD_LEVEL if level is None else level))


_UNPACK: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    Compression.NONE: _unpack_none,
    Compression.GZIP: _unpack_gzip,
    Compression.SNAPPY: _unpack_snappy,
    Compression.LZ4: _unpack_lz4,
    Compression.ZSTD: _unpack_zstd,
}
_PACK: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    Compression.NONE: _pack_none,
    Compression.GZIP: _pack_gzip,
    Compression.SNAPPY: _pack_snappy,
    Compression.LZ4: _pack_lz4,
    Compression.ZSTD: _pack_zstd,
}
