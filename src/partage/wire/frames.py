"""Frames: the length and the header around every message.

A frame is a four-byte length followed by that many bytes: a header and one message. The first eight
bytes of a request header are the same in all versions. So a broker can answer any request with the
versions it supports.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.wire.api import Api, Req, Res
from partage.wire.codec.decoding import skip_tags
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

FRAME_LENGTH: Final = struct.Struct(">i")
CORRELATION_ID: Final = struct.Struct(">i")
_FIRST: Final = struct.Struct(">hhi")
_CORRELATION_ID_AT: Final = 4
_CLIENT_ID: Final = struct.Struct(">h")
#: For each version, packs the length and the header; and the size of the header. Version 1 has an
#: empty section of tagged fields.
_RESPONSE_HEADERS: Final = ((struct.Struct(">ii").pack, 4), (struct.Struct(">iix").pack, 5))


class RequestPrefix(NamedTuple):
    """The part of a request header that is the same in all versions."""

    api_key: int
    api_version: int
    correlation_id: int


def parse_request_prefix(frame: Buffer) -> RequestPrefix:
    """Parse the first eight bytes of a request frame, without its length.

    Raises:
        MalformedError: The frame has fewer than eight bytes.
    """
    if len(frame) < _FIRST.size:
        raise MalformedError(f"a request of {len(frame)} bytes is too short for a header")
    return RequestPrefix._make(_FIRST.unpack_from(frame))


def parse_correlation_id(data: Buffer, begin: int = 0) -> int:
    """Return the correlation id of a request frame of at least eight bytes at ``begin``."""
    correlation_id: int = CORRELATION_ID.unpack_from(data, begin + _CORRELATION_ID_AT)[0]
    return correlation_id


def parse_request_header(api: Api[Req, Res], version: int, frame: Buffer) -> tuple[str | None, int]:
    """Parse the rest of a request header; return the client id and the position of the body.

    The client id keeps its two-byte length in flexible versions too (KIP-511).

    Raises:
        MalformedError: The header is incomplete, or the client id is not UTF-8.
    """
    client_id, pos = parse_client_id(frame)
    if api.is_flexible(version):
        pos = skip_tag_section(frame, pos)
    return client_id, pos


def parse_client_id(frame: Buffer) -> tuple[str | None, int]:
    """Parse the client id of a request header of version 1 or 2; return it and the position after.

    Raises:
        MalformedError: The header is incomplete, or the client id is not UTF-8.
    """
    pos = _FIRST.size
    if len(frame) - pos < _CLIENT_ID.size:
        raise MalformedError("the request header ends before its client id")
    (length,) = _CLIENT_ID.unpack_from(frame, pos)
    pos += _CLIENT_ID.size
    if length < 0:
        return None, pos
    if length > len(frame) - pos:
        raise MalformedError(
            f"the client id declares {length} bytes, but {len(frame) - pos} are left"
        )
    try:
        client_id = str(frame[pos : pos + length], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError("the client id is not valid UTF-8") from error
    return client_id, pos + length


def skip_tag_section(frame: Buffer, pos: int) -> int:
    """Return the position after a section of tagged fields; none is known in headers."""
    try:
        count = frame[pos]
        if count == 0:
            return pos + 1
        if count > 127:
            raise MalformedError(f"the header has more than 127 tagged fields (byte {pos})")
        return skip_tags(frame, pos + 1, count)
    except IndexError as error:
        raise MalformedError("the header ends within its tagged fields") from error


def encode_response_frame(
    header_version: int, correlation_id: int, body: Sequence[Buffer]
) -> list[Buffer]:
    """Encode a complete response: length, header, body."""
    pack, header_size = _RESPONSE_HEADERS[header_version]
    if len(body) == 1:
        only = body[0]
        return [pack(header_size + len(only), correlation_id), only]
    return [pack(header_size + sum(map(len, body)), correlation_id), *body]


def encode_request_frame(
    api: Api[Req, Res], version: int, correlation_id: int, client_id: str, body: Sequence[Buffer]
) -> list[Buffer]:
    """Encode a complete request: length, header, body."""
    name = client_id.encode()
    tags = b"\x00" if api.is_flexible(version) else b""
    header = _FIRST.pack(api.key, version, correlation_id) + _CLIENT_ID.pack(len(name)) + name
    size = len(header) + len(tags) + sum(map(len, body))
    return [FRAME_LENGTH.pack(size) + header + tags, *body]


def parse_response_header(api: Api[Req, Res], version: int, frame: Buffer) -> tuple[int, int]:
    """Parse a response header (without the frame length); return correlation id and body position.

    Raises:
        MalformedError: The header is incomplete.
    """
    if len(frame) < 4:
        raise MalformedError(f"a response of {len(frame)} bytes is too short for a header")
    (correlation_id,) = CORRELATION_ID.unpack_from(frame)
    pos = 4
    if api.response_header_version(version):
        pos = skip_tag_section(frame, pos)
    return correlation_id, pos
