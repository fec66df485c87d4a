"""Lines of a file, a pipe or a terminal, without blocking on input."""

from __future__ import annotations

import io
import select
from collections.abc import Iterator
from typing import BinaryIO, Final

_IDLE_S: Final = 0.1
_CHUNK_BYTES: Final = 1 << 16


def read_lines(stream: BinaryIO) -> Iterator[bytes | None]:
    r"""Yield lines without their ends (``\n``, ``\r\n``), and None while no line is available.

    The last line need not have an end.
    """
    return _whole(_chunks(stream))


def _chunks(stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield chunks as they arrive, and None after each tenth of a second without input."""
    try:
        number = stream.fileno()
    except (io.UnsupportedOperation, AttributeError):
        number = None
    while True:
        if number is not None and not select.select([number], [], [], _IDLE_S)[0]:
            yield None
            continue
        chunk = _read_some(stream)
        if not chunk:
            return
        yield chunk


def _read_some(stream: BinaryIO) -> bytes:
    # Read unbuffered: lines in a buffer would be invisible to select.
    raw = getattr(stream, "raw", stream)
    return bytes(raw.read(_CHUNK_BYTES) or b"")


def _whole(chunks: Iterator[bytes | None]) -> Iterator[bytes | None]:
    pieces: list[bytes] = []
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        for piece in rest:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [piece]
    if last := b"".join(pieces):
        yield last.removesuffix(b"\r")
