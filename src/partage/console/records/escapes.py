"""Backslash escapes in separators and formats, as in kcat."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_NAMED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes.

    The escapes are ``\n``, ``\r``, ``\t``, ``\xHH`` and ``\OOO`` (octal). A backslash before
    another character is removed.
    """
    return _ESCAPE.sub(_one, text.encode(errors="surrogateescape"))


def _one(found: re.Match[bytes]) -> bytes:
    hexadecimal, octal, char = found.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    return _NAMED.get(char, char)
