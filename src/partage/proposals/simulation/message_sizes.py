"""The size of messages on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from partage.wire.api import AnyApi
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.frames import encode_request_frame, encode_response_frame
from partage.wire.types import Buffer, Message

_CLIENT_ID: Final = "consumer"

#: The APIs of Kafka that the designs with JoinGroup use, in the first version that they need.
SHARED_APIS: Final[tuple[tuple[AnyApi, int], ...]] = (
    (HEARTBEAT, 0),
    (LEAVE_GROUP, 0),
    (OFFSET_COMMIT, 2),
    (OFFSET_FETCH, 1),
)


class MessageSizes:
    """The sizes of the messages of some APIs, each in one version.

    A list that several messages share, such as the members of a group, is measured once.

    Args:
        apis: The APIs with their versions.
        shared_field: The name of the field with the shared list, by the type of the message.
    """

    def __init__(
        self,
        apis: Iterable[tuple[AnyApi, int]],
        shared_fields: dict[type[Message], str] | None = None,
    ) -> None:
        self._apis: dict[type[Message], tuple[AnyApi, int, bool]] = {}
        for api, version in apis:
            self._apis[api.request] = (api, version, True)
            self._apis[api.response] = (api, version, False)
        self._shared_fields = shared_fields or {}
        self._overheads: dict[type[Message], int] = {}  # frame and header
        self._measured: tuple[list[Message], int] = ([], 0)

    def size(self, message: Message) -> int:
        """Return the bytes of a message with its frame and header."""
        field = self._shared_fields.get(type(message))
        if field is None:
            return self._encoded_size(message)
        shared: list[Message] = getattr(message, field)
        if shared is not self._measured[0]:
            self._measured = (shared, self._shared_size(message, field, shared))
        setattr(message, field, [])
        size = self._encoded_size(message)
        setattr(message, field, shared)
        return size + self._measured[1]

    def _shared_size(self, message: Message, field: str, shared: list[Message]) -> int:
        whole = self._encoded_size(message)
        setattr(message, field, [])
        rest = self._encoded_size(message)
        setattr(message, field, shared)
        return whole - rest

    def _encoded_size(self, message: Message) -> int:
        api, version, is_request = self._apis[type(message)]
        if is_request:
            body = api.encode_request(version, message)
        else:
            body = api.encode_response(version, message)
        size = sum(map(len, body))
        overhead = self._overheads.get(type(message))
        if overhead is None:
            overhead = self._overheads[type(message)] = self._whole_size(message, body) - size
        return size + overhead

    def _whole_size(self, message: Message, body: list[Buffer]) -> int:
        """Return the size with the frame and header."""
        api, version, is_request = self._apis[type(message)]
        if is_request:
            return sum(map(len, encode_request_frame(api, version, 0, _CLIENT_ID, body)))
        header_version = api.response_header_version(version)
        return sum(map(len, encode_response_frame(header_version, 0, body)))
