"""Observers of the responses to the requests of a world.

Several observers may want the same response, and most responses are equal to an earlier one except
for their correlation id: those to heartbeats, commits, and fetches without records. So a response
is decoded only if an observer needs its message, and equal ones are decoded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final, cast

from partage.broker.net.inbound_request import InboundRequest, RequestConnection
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.frames import CORRELATION_ID, FRAME_LENGTH, parse_response_header
from partage.wire.records.batch import HEADER_SIZE

#: Larger responses are not kept.
_KEPT_BYTES_MAX: Final = 1_000
_KEPT_RESPONSES: Final = 1_000
#: The length and the correlation id; the rest may be equal in several responses.
_PREFIX_SIZE: Final = FRAME_LENGTH.size + CORRELATION_ID.size


class _Content:
    """A decoded response.

    Attributes:
        message: the response; it must not be changed.
    """

    def __init__(self, api: AnyApi, version: int, content: bytes) -> None:
        frame = bytes(CORRELATION_ID.size) + content
        _, pos = parse_response_header(api, version, frame)
        self.message: Any = api.decode_response(version, frame, pos)

    @cached_property
    def first_error(self) -> str:
        """The name of the first error in the response, or ""."""
        return _first_error(self.message)


_kept_content = lru_cache(_KEPT_RESPONSES)(_Content)


class ObservedResponse:
    """The response to a request, as its observers see it.

    Args:
        inbound: the request, which has its response.
    """

    def __init__(self, inbound: InboundRequest) -> None:
        self._inbound = inbound
        self._content: _Content | None = None
        self._has_records: bool | None = None

    def _decode(self) -> _Content:
        if self._content is None:
            inbound = self._inbound
            content = b"".join(inbound.response_buffers)[_PREFIX_SIZE:]
            decoded = _Content if len(content) > _KEPT_BYTES_MAX else _kept_content
            self._content = decoded(inbound.api, inbound.version, content)
        return self._content

    @property
    def message(self) -> Any:
        """The response, as the client decodes it; it must not be changed."""
        return self._decode().message

    @property
    def first_error(self) -> str:
        """The name of the first error in the response, or ""."""
        return self._decode().first_error

    @property
    def is_empty(self) -> bool:
        """True if the request has no response: Produce with acks=0."""
        return not self._inbound.response_buffers

    @property
    def has_records(self) -> bool:
        """True if a Fetch response may have records.

        Record batches are separate buffers, and the first two have the header and the first fields.
        """
        if self._has_records is None:
            largest = max(map(len, self._inbound.response_buffers[2:]), default=0)
            self._has_records = largest >= HEADER_SIZE
        return self._has_records


class ObservedConnection:
    """The connection of an observed request, for its handler.

    Attributes:
        original: the connection of the client.
        observers: called when the response is ready, the last one first.
    """

    original: RequestConnection
    observers: list[Callable[[ObservedResponse], None]]

    def __init__(self, inbound: InboundRequest) -> None:
        self.__dict__.update(original=inbound.connection, observers=[], _inbound=inbound)

    def on_response_ready(self) -> None:
        """Call the observers, and continue."""
        self._inbound.connection = self.original
        response = ObservedResponse(self._inbound)
        for answered in reversed(self.observers):
            answered(response)
        self.original.on_response_ready()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.original, name, value)


def observe_response(inbound: InboundRequest, answered: Callable[[ObservedResponse], None]) -> None:
    """Call a function with the response of a request, before earlier observers."""
    connection: Any = inbound.connection
    if not isinstance(connection, ObservedConnection):
        connection = ObservedConnection(inbound)
        inbound.connection = cast(RequestConnection, connection)
    connection.observers.append(answered)


def original_connection(inbound: InboundRequest) -> RequestConnection:
    """Return the connection of the client, whether the request is observed or not."""
    connection: Any = inbound.connection
    return connection.original if isinstance(connection, ObservedConnection) else connection


def _first_error(message: Any) -> str:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "error_code" and value:
            return ErrorCode(value).name if value in iter(ErrorCode) else f"error {value}"
        if isinstance(value, list):
            for each in value:
                if hasattr(each, "__struct_fields__") and (found := _first_error(each)):
                    return found
    return ""
