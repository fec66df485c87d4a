"""The frames of the designs with JoinGroup: those of Kafka's protocol.

A response has no type. The correlation id says which request it answers, so both ends of a
connection remember the requests that have no response yet. `CoordinatorFrames` and `MemberFrames`
are the two ends of one connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from partage.wire import codec
from partage.wire.api import AnyApi
from partage.wire.frames import (
    FRAME_LENGTH,
    encode_request_frame,
    encode_response_frame,
    parse_request_header,
    parse_request_prefix,
    parse_response_header,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer, Message

#: The client id in the requests of members.
CLIENT_ID: Final = "consumer"

_CORRELATION_ID_MAX: Final = 2**31 - 1

#: The limit for requests to a coordinator: the assignment of a group has an entry for each member
#: and each partition.
_REQUEST_ALLOWANCE: Final = codec.Allowance(4_000, 4, 250_000, 4)


class ProtocolVersions:
    """The requests of one design, each in one version.

    Args:
        apis: The APIs with their versions.
        in_flight_max: The requests of a connection that may wait for responses together.
    """

    def __init__(self, apis: Iterable[tuple[AnyApi, int]], *, in_flight_max: int = 1) -> None:
        self.in_flight_max = in_flight_max
        self._by_key: dict[int, tuple[AnyApi, int]] = {}
        self._by_request: dict[type[Message], tuple[AnyApi, int]] = {}
        for api, version in apis:
            self._by_key[api.key] = self._by_request[api.request] = (api, version)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._by_key)

    def find(self, key: int, version: int) -> AnyApi:
        """Return the API of a request.

        Raises:
            MalformedError: The design has no such request.
        """
        api, known_version = self._by_key.get(key, (None, 0))
        if api is None:
            raise MalformedError(f"the design has no request with the API key {key}")
        if version != known_version:
            raise MalformedError(f"{api.name} has version {known_version}, not {version}")
        return api

    def of_request(self, message: Message) -> tuple[AnyApi, int]:
        """Return the API and the version of a request."""
        return self._by_request[type(message)]


class CoordinatorFrames:
    """A connection at the coordinator: decodes requests and encodes their responses."""

    def __init__(self, versions: ProtocolVersions) -> None:
        self._versions = versions
        self._open: list[tuple[AnyApi, int, int]] = []  # with version and correlation id

    @property
    def has_open_request(self) -> bool:
        """True if a request has no response yet."""
        return bool(self._open)

    def decode(self, frame: Buffer) -> Message:
        """Decode a request.

        Args:
            frame: The frame, with its length.

        Raises:
            MalformedError: The frame is no request of the design, or too many requests before it
                have no response yet.
        """
        body = _frame_content(frame)
        key, version, correlation_id = parse_request_prefix(body)
        api = self._versions.find(key, version)
        _, position = parse_request_header(api, version, body)
        request: type[Message] = api.request
        flexible = api.is_flexible(version)
        decode = codec.decoder(request, version, flexible, _REQUEST_ALLOWANCE)
        message: Message
        message, position = decode(body, position)
        _check_end(api, body, position)
        if len(self._open) >= self._versions.in_flight_max:
            raise MalformedError(f"{api.name} came before the response to {self._open[0][0].name}")
        self._open.append((api, version, correlation_id))
        return message

    def encode(self, message: Message) -> list[Buffer]:
        """Encode the response to the first request that waits for a response of its type."""
        answered = next(each for each in self._open if isinstance(message, each[0].response))
        self._open.remove(answered)
        api, version, correlation_id = answered
        body = api.encode_response(version, message)
        return encode_response_frame(api.response_header_version(version), correlation_id, body)


class MemberFrames:
    """A connection at a member: encodes requests and decodes their responses."""

    def __init__(self, versions: ProtocolVersions) -> None:
        self._versions = versions
        self._correlation_id = -1
        self._open: dict[int, tuple[AnyApi, int]] = {}  # by correlation id

    def encode(self, message: Message) -> list[Buffer]:
        """Encode a request."""
        name = type(message).__name__
        assert len(self._open) < self._versions.in_flight_max, f"{name} before earlier responses"
        api, version = self._versions.of_request(message)
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        self._open[self._correlation_id] = api, version
        body = api.encode_request(version, message)
        return encode_request_frame(api, version, self._correlation_id, CLIENT_ID, body)

    def decode(self, frame: Buffer) -> Message:
        """Decode the response to a request.

        Args:
            frame: The frame, with its length.

        Raises:
            MalformedError: The frame is not that response.
        """
        body = _frame_content(frame)
        if len(body) < FRAME_LENGTH.size:
            raise MalformedError(f"a response of {len(body)} bytes is too short for a header")
        (correlation_id,) = FRAME_LENGTH.unpack_from(body)
        if correlation_id not in self._open:
            raise MalformedError(f"no request waits for the correlation id {correlation_id}")
        api, version = self._open[correlation_id]
        _, position = parse_response_header(api, version, body)
        response: type[Message] = api.response
        decode = codec.decoder(response, version, api.is_flexible(version))
        message: Message
        message, position = decode(body, position)
        _check_end(api, body, position)
        del self._open[correlation_id]
        return message


def _frame_content(frame: Buffer) -> memoryview:
    """Return a frame without its length."""
    if len(frame) < FRAME_LENGTH.size:
        raise MalformedError(f"a frame of {len(frame)} bytes is too short for its length")
    (size,) = FRAME_LENGTH.unpack_from(frame)
    content = memoryview(frame)[FRAME_LENGTH.size :]
    if size != len(content):
        raise MalformedError(f"length {size} of a frame with {len(content)} bytes after it")
    return content


def _check_end(api: AnyApi, body: memoryview, position: int) -> None:
    if position != len(body):
        raise MalformedError(f"{len(body) - position} bytes left after {api.name}")
