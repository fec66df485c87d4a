"""The delayed scheduler of pings: a priority queue of timestamps."""

from __future__ import annotations

import heapq

from partage.proposals.machine import ConnectionId


class PingScheduler:
    """The times of the next pings."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, ConnectionId]] = []
        self._scheduled: dict[ConnectionId, int] = {}

    def add(self, connection: ConnectionId, at_ms: int) -> None:
        """Schedule the next ping of a consumer."""
        self._scheduled[connection] = at_ms
        heapq.heappush(self._queue, (at_ms, connection))

    def remove(self, connection: ConnectionId) -> None:
        """Schedule no further ping for a consumer."""
        self._scheduled.pop(connection, None)

    def has(self, connection: ConnectionId) -> bool:
        """True if the next ping of a consumer is scheduled."""
        return connection in self._scheduled

    @property
    def next_ms(self) -> int | None:
        """The time of the next ping."""
        while self._queue:
            at_ms, connection = self._queue[0]
            if self._scheduled.get(connection) == at_ms:
                return at_ms
            heapq.heappop(self._queue)
        return None

    def pop_due(self, now_ms: int) -> list[tuple[ConnectionId, int]]:
        """Remove and return the pings that are due, with their times."""
        due = []
        while (at_ms := self.next_ms) is not None and at_ms <= now_ms:
            _, connection = heapq.heappop(self._queue)
            del self._scheduled[connection]
            due.append((connection, at_ms))
        return due
