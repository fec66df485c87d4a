"""Compiles message declarations into specialised encoders and decoders for each version.

The generated code has no branches on the version and no calls per field. Runs of fixed-size fields
are one ``struct`` call. Each length is compared with the bytes left before anything is read. A
count is compared with the smallest size of its elements before a list is created. Compilation
happens at the first use of a (message, version). `decoder_source` and `encoder_source` return the
generated code.

Limits of what a peer may declare; each violation raises `MalformedError`:

- An array's count must fit the bytes left.
- All arrays of a message together may hold as many elements as its `Allowance` permits.
- A string may have ``TEXT_MAX`` bytes.
- A structure may have ``TAGS_MAX`` tagged fields. Unknown ones are skipped and never stored.

These limits prevent https://nvd.nist.gov/vuln/detail/CVE-2026-111108 and
https://nvd.nist.gov/vuln/detail/CVE-2026-111115.
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
    """Return the source of the generated decoder."""
    return DecoderGenerator(version, flexible, allowance).message(cls)


def encoder_source(cls: type[Message], version: int, flexible: bool) -> str:
    """Return the source of the generated encoder."""
    return EncoderGenerator(version, flexible).message(cls)


@cache
def decoder(
    cls: type[Message], version: int, flexible: bool, allowance: Allowance = RESPONSE_ALLOWANCE
) -> Decoder:
    """Return a decoder: a function ``(buffer, position) -> (message, position after it)``.

    It raises `MalformedError` if the bytes are not such a message. It never reads beyond the
    buffer, and allocates no more than the size of the buffer justifies.
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
    """Return an encoder: a function ``message -> list of buffers``. Record buffers are not copied.

    A value that its field cannot hold is an error of the caller: ``struct.error``,
    ``AttributeError`` or ``TypeError``. Examples are a number out of range, a string longer than
    ``TEXT_MAX``, or a None that the version does not allow.
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
