"""The requests that wait for the responses of consumers."""

from __future__ import annotations

from collections import deque
from enum import StrEnum

import msgspec

from partage.proposals.machine import ConnectionId


class RequestKind(StrEnum):
    """The requests of the coordinator, each with a purgatory."""

    PING = "ping"
    STOP_FETCHER = "stop fetcher"
    START_FETCHER = "start fetcher"


class WatcherTimer(msgspec.Struct, frozen=True):
    """The expiry of one request."""

    kind: RequestKind
    connection: ConnectionId
    number: int


class Purgatory:
    """The watchers of one kind of request.

    Responses have no request numbers. A consumer answers requests in order, so a response belongs
    to the oldest request without one, even if that request has expired.
    """

    def __init__(self, kind: RequestKind) -> None:
        self.kind = kind
        self._count = 0
        self._waiting: dict[ConnectionId, deque[WatcherTimer]] = {}

    def watch(self, connection: ConnectionId) -> WatcherTimer:
        """Add a watcher for a request that is sent now."""
        self._count += 1
        watcher = WatcherTimer(self.kind, connection, self._count)
        self._waiting.setdefault(connection, deque()).append(watcher)
        return watcher

    def satisfy(self, connection: ConnectionId) -> WatcherTimer | None:
        """Clear the watcher of the oldest request; None if there is none."""
        waiting = self._waiting.get(connection)
        return waiting.popleft() if waiting else None

    def has_waiting(self, connection: ConnectionId) -> bool:
        """True if a request to this consumer has no response."""
        return bool(self._waiting.get(connection))

    def remove(self, connection: ConnectionId) -> list[WatcherTimer]:
        """Remove and return the watchers of a consumer."""
        return list(self._waiting.pop(connection, ()))
