"""Random damage to bytes, mostly where parsers decide: lengths, counts, varints, ends."""

from __future__ import annotations

import struct
from random import Random

_BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_INTEGERS = (
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x7f" + b"\xff" * 7,
    b"\x80" + b"\x00" * 7,
    b"\xff\xff\xff\xff\x07",  # the largest length of a compact field
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,  # varints without end
    b"\x80" * 12,
)


def damaged(rng: Random, content: bytes) -> bytes:
    """Return the bytes with up to five faults, sometimes none."""
    out = bytearray(content)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice(_BYTES)
            case 2:
                integer = rng.choice(_INTEGERS)
                out[at : at + len(integer)] = integer
            case 3:
                out[at:at] = rng.choice(_INTEGERS)
            case 4:
                del out[at : at + rng.choice((1, 2, 4, 8, 100))]
            case 5:
                del out[at:]
            case _:
                size = rng.choice((1, 4, 30, 300))
                out[at:at] = out[at : at + size] * rng.choice((1, 2, 20))
    return bytes(out)


def reframed(rng: Random, request: bytes) -> bytes:
    """Return a request frame, sometimes with a wrong length."""
    size = len(request)
    if rng.random() < 0.05:
        size = rng.choice((-1, 0, size - 1, size + 1, 2 * size, 2**31 - 1, -(2**31)))
    return struct.pack(">i", size) + request
