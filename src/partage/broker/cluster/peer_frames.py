"""Requests to other brokers and their responses, as frames on a stream."""

from __future__ import annotations

import asyncio
from typing import Any

from partage.wire.api import Api, Req, Res
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from partage.wire.primitives import MalformedError


def encode_peer_request(
    api: Api[Req, Any], version: int, correlation_id: int, client_id: str, message: Req
) -> list[bytes]:
    """Return the parts of a request's frame.

    Args:
        api: the API of the request.
        version: the version of the API.
        correlation_id: the number of the request on its connection.
        client_id: the client id of this broker.
        message: the request.
    """
    body = api.encode_request(version, message)
    frame = encode_request_frame(api, version, correlation_id, client_id, body)
    return [bytes(part) for part in frame]


async def read_peer_response(
    reader: asyncio.StreamReader,
    api: Api[Any, Res],
    version: int,
    correlation_id: int,
    bytes_max: int,
) -> Res:
    """Read and decode the response to a request.

    Args:
        reader: the stream of the connection.
        api: the API of the request.
        version: the version of the API.
        correlation_id: the number of the request on its connection.
        bytes_max: the largest size of a response that is accepted.

    Raises:
        MalformedError: the response is too large, answers another request, or is not valid.
        EOFError, OSError: the connection was closed.
    """
    (size,) = FRAME_LENGTH.unpack(await reader.readexactly(FRAME_LENGTH.size))
    if not 0 < size <= bytes_max:
        raise MalformedError(f"invalid response size: {size} bytes")
    frame = await reader.readexactly(size)
    answers, pos = parse_response_header(api, version, frame)
    if answers != correlation_id:
        raise MalformedError(f"response has correlation id {answers}, expected {correlation_id}")
    return api.decode_response(version, frame, pos)
