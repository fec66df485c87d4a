"""A heartbeat that a client repeats: decoded, converted and encoded once.

A member sends the same heartbeat until its group changes, and gets the same response. Only the
correlation ids differ. So a connection keeps its last heartbeat, and compares the next one with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat, RepeatedHeartbeat
from partage.coordinator.events import Request
from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.frames import CORRELATION_ID, FRAME_LENGTH, encode_response_frame
from partage.wire.types import Buffer

#: The APIs whose requests clients repeat. An event depends only on the request, its client and a
#: fresh id; a response depends only on the reply.
_REPEATED_KEYS: Final = frozenset({HEARTBEAT.key, CONSUMER_GROUP_HEARTBEAT.key})

# The parts of a request around the correlation id, and of a response with its length.
_BEFORE_ID: Final = slice(0, 4)
_AFTER_ID: Final = slice(8, None)
#: Limits of a kept request and of a kept response; each connection keeps one of both.
_REQUEST_BYTES_MAX: Final = 512
_RESPONSE_BYTES_MAX: Final = 512

_pack_id = CORRELATION_ID.pack  # the attribute takes longer


class RepeatedRequest:
    """The last heartbeat of a connection, with the reply and the response that it got.

    Attributes:
        api: its API.
        version: its API version.
        client_id: the client id in its header.
        message: the decoded request; handlers must not change it.
        received_size: the size of its frame with the length before it.
    """

    __slots__ = (
        "_event",
        "_received_start",
        "_reply",
        "_request_end",
        "_request_start",
        "_response_end",
        "_response_start",
        "api",
        "client_id",
        "message",
        "received_size",
        "version",
    )

    def __init__(
        self, frame: Buffer, api: AnyApi, version: int, client_id: str, message: Any
    ) -> None:
        self.api = api
        self.version = version
        self.client_id = client_id
        self.message = message
        self.received_size = FRAME_LENGTH.size + len(frame)
        self._request_start = frame[_BEFORE_ID]
        self._received_start = FRAME_LENGTH.pack(len(frame)) + self._request_start
        self._request_end = frame[_AFTER_ID]
        self._event: Any = None
        self._reply: Any = None
        self._response_start = self._response_end = b""

    def matches(self, frame: Buffer) -> bool:
        """True if a frame is this request; the correlation id may differ."""
        return frame[_AFTER_ID] == self._request_end and frame[_BEFORE_ID] == self._request_start

    def is_received(self, data: bytes) -> bool:
        """True if `received_size` bytes are this request with its length; see `matches`."""
        return data.endswith(self._request_end) and data.startswith(self._received_start)

    def event(self, at_ms: int, ticket: Any) -> Request | None:
        """Return the event of the request at another time; None before `keep_event`."""
        original = self._event
        if original is None:
            return None
        if type(original) is ConsumerGroupHeartbeat:
            return RepeatedHeartbeat(
                at_ms=at_ms, reply_to=ticket, group_id=original.group_id, original=original
            )
        event: Request = msgspec.structs.replace(original, at_ms=at_ms, reply_to=ticket)
        return event

    def keep_event(self, event: Request) -> None:
        """Keep the event, without its ticket, which refers to the connection."""
        self._event = msgspec.structs.replace(event, reply_to=None)

    def response(self, reply: Any, correlation_id: int) -> bytes | None:
        """Return the complete response for a reply; None if the last reply was different."""
        if self._response_end and (reply is self._reply or reply == self._reply):
            return self._response_start + _pack_id(correlation_id) + self._response_end
        return None

    def keep_response(self, reply: Any, body: Sequence[Buffer]) -> None:
        """Keep the encoded response body for a reply, unless it is long."""
        header_version = self.api.response_header_version(self.version)
        frame = b"".join(encode_response_frame(header_version, 0, body))
        if len(frame) <= _RESPONSE_BYTES_MAX:
            self._reply = reply
            self._response_start, self._response_end = frame[_BEFORE_ID], frame[_AFTER_ID]
        else:
            self._reply, self._response_end = None, b""


def is_repeated(key: int, frame: Buffer) -> bool:
    """True if a connection keeps a request of this API."""
    return key in _REPEATED_KEYS and len(frame) <= _REQUEST_BYTES_MAX
