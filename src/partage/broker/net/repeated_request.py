"""A heartbeat that a client repeats: decoded, converted and encoded once.

A member sends the same heartbeat until its group changes, and gets the same response. Only the
correlation ids differ. So a connection keeps its last heartbeat, and compares the next one with it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from partage.coordinator.events import Request
from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.types import Buffer

#: The APIs whose requests clients repeat. An event depends only on the request, its client and a
#: fresh id; a response depends only on the reply.
_REPEATED_KEYS: Final = frozenset({HEARTBEAT.key, CONSUMER_GROUP_HEARTBEAT.key})

# The parts of a frame around the correlation id.
_API: Final = slice(0, 4)
_REST: Final = slice(8, None)
#: Limits of a kept request and of a kept response; each connection keeps one of both.
_FRAME_BYTES_MAX: Final = 512
_BODY_BYTES_MAX: Final = 512


class RepeatedRequest:
    """The last heartbeat of a connection, with the reply and the response that it got.

    Attributes:
        api: its API.
        version: its API version.
        client_id: the client id in its header.
        message: the decoded request; handlers must not change it.
    """

    __slots__ = (
        "_api_bytes",
        "_body",
        "_event",
        "_reply",
        "_rest",
        "api",
        "client_id",
        "message",
        "version",
    )

    def __init__(
        self, frame: Buffer, api: AnyApi, version: int, client_id: str, message: Any
    ) -> None:
        self.api = api
        self.version = version
        self.client_id = client_id
        self.message = message
        self._api_bytes = frame[_API]
        self._rest = frame[_REST]
        self._event: Any = None
        self._reply: Any = None
        self._body: list[Buffer] | None = None

    def matches(self, frame: Buffer) -> bool:
        """True if a frame is this request; the correlation id may differ."""
        return frame[_REST] == self._rest and frame[_API] == self._api_bytes

    def event(self, at_ms: int, ticket: object) -> Request | None:
        """Return the event of the request at another time; None before `keep_event`."""
        if self._event is None:
            return None
        event: Request = msgspec.structs.replace(self._event, at_ms=at_ms, reply_to=ticket)
        return event

    def keep_event(self, event: Request) -> None:
        """Keep the event, without its ticket, which refers to the connection."""
        self._event = msgspec.structs.replace(event, reply_to=None)

    def body(self, reply: Any) -> list[Buffer] | None:
        """Return the encoded response for a reply; None if the last reply was different."""
        return self._body if reply is self._reply or reply == self._reply else None

    def keep_body(self, reply: Any, body: list[Buffer]) -> list[Buffer]:
        """Keep the encoded response for a reply, unless it is long; return it as one buffer."""
        joined: list[Buffer] = [b"".join(body)]
        is_kept = len(joined[0]) <= _BODY_BYTES_MAX
        self._reply, self._body = (reply, joined) if is_kept else (None, None)
        return joined


def is_repeated(key: int, frame: Buffer) -> bool:
    """True if a connection keeps a request of this API."""
    return key in _REPEATED_KEYS and len(frame) <= _FRAME_BYTES_MAX
