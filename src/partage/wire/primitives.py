"""Variable-length integers, and the error for malformed bytes."""

from __future__ import annotations

from partage.wire.types import Buffer


class MalformedError(ValueError):
    """Raised when bytes do not follow the protocol; the message says where and why."""


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned base-128 varint, low group first. ``value`` must not be negative."""
    if value < 0x80:
        return SMALL_UVARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS = [bytes((n,)) for n in range(0x80)]


def decode_uvarint(buf: Buffer, pos: int, bytes_max: int = 5) -> tuple[int, int]:
    """Decode the unsigned varint at ``pos``; return it and the position after it.

    Args:
        bytes_max: Longest accepted varint: 5 bytes for 32 bits, 10 for 64.

    Raises:
        MalformedError: The varint is longer than ``bytes_max``.
        IndexError: The buffer ends inside it.
    """
    value = shift = 0
    for at in range(pos, pos + bytes_max):
        byte = buf[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise MalformedError(f"varint at byte {pos} is longer than {bytes_max} bytes")


def encode_varint(value: int) -> bytes:
    """Encode a signed varint in zig-zag form, as record fields use it."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def decode_varint(buf: Buffer, pos: int, bytes_max: int = 10) -> tuple[int, int]:
    """Decode the zig-zag varint at ``pos``; return it and the position after it.

    Raises as `decode_uvarint`.
    """
    raw, pos = decode_uvarint(buf, pos, bytes_max)
    return (raw >> 1) ^ -(raw & 1), pos
