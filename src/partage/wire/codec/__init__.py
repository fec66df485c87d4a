"""Compiles message declarations into encoders and decoders, one specialised pair a version.

The generated code has no branch on the version and no call per field: runs of fixed-size fields
are one ``struct`` call, lengths are checked against what is left before anything is taken, and a
count is checked against what its elements need at least before a list is begun. Compiling happens
at first use of a (message, version); `decoder_source` and `encoder_source` show what came out.

Limits on what a peer may declare (each a `Malformed`): an array's count must fit the bytes left,
all arrays of a message together may hold what its `Allowance` says, a string ``TEXT_MAX`` bytes, a
structure may carry ``TAGS_MAX`` tagged fields, of which unknown ones are skipped and never kept
(CVE-2026-111108, CVE-2026-111115).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from partage.wire.codec.decoding import (
    REQUEST_ALLOWANCE,
    RESPONSE_ALLOWANCE,
    TAGS_MAX,
    Allowance,
    DecoderGenerator,
)
from partage.wire.codec.encoding import EncoderGenerator
from partage.wire.codec.layout import TEXT_MAX
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer, Message

__all__ = [
    "REQUEST_ALLOWANCE",
    "RESPONSE_ALLOWANCE",
    "TAGS_MAX",
    "TEXT_MAX",
    "Allowance",
    "decoder",
    "decoder_source",
    "encoder",
    "encoder_source",
]

Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Buffer]]


def decoder_source(
    cls: type[Message], version: int, flexible: bool, allowance: Allowance = RESPONSE_ALLOWANCE
) -> str:
    """The generated decoder, as text."""
    return DecoderGenerator(version, flexible, allowance).message(cls)


def encoder_source(cls: type[Message], version: int, flexible: bool) -> str:
    """The generated encoder, as text."""
    return EncoderGenerator(version, flexible).message(cls)


@cache
def decoder(
    cls: type[Message], version: int, flexible: bool, allowance: Allowance = RESPONSE_ALLOWANCE
) -> Decoder:
    """A function ``(buffer, position) -> (message, position after it)``.

    It raises `Malformed` for bytes that are not such a message, and never reads or allocates more
    than the buffer justifies.
    """
    writer = DecoderGenerator(version, flexible, allowance)
    decode = _compile(writer.message(cls), writer.src.names, "decode", cls, version)

    def guarded(buf: Buffer, pos: int) -> tuple[Any, int]:
        try:
            message, pos = decode(buf, pos)
        except (IndexError, struct.error) as error:
            raise MalformedError(f"{cls.__name__} v{version} ends before its last field") from error
        except UnicodeDecodeError as error:
            raise MalformedError(
                f"{cls.__name__} v{version}: a string is not valid UTF-8"
            ) from error
        return message, pos

    return guarded


@cache
def encoder(cls: type[Message], version: int, flexible: bool) -> Encoder:
    """A function ``message -> list of buffers``; record buffers stay uncopied.

    What does not fit its field (a number out of range, a string above ``TEXT_MAX``, a None that
    this version does not allow) is the caller's mistake: ``struct.error``, ``AttributeError`` or
    ``TypeError``.
    """
    writer = EncoderGenerator(version, flexible)
    encode: Encoder = _compile(writer.message(cls), writer.src.names, "encode", cls, version)
    return encode


def _compile(
    text: str, names: dict[str, Any], function: str, cls: type[Message], version: int
) -> Any:
    scope = dict(names)
    exec(compile(text, f"<{function} {cls.__name__} v{version}>", "exec"), scope)
    return scope[function]
