"""Memory limit for all large requests together (``queued.max.request.bytes``).

Like Kafka's `MemoryPool`, but without blocking: a request that must wait gets a callback.
"""

from __future__ import annotations

from collections.abc import Callable

GrantCallback = Callable[[], None]


class MemoryPool:
    """Bytes that large requests hold, from their arrival until they are served.

    A request gets memory step by step as it arrives; the size that it only claims costs nothing. A
    step is granted only if all that the request still needs would fit too (the banker's rule). So
    the last request that got memory can always complete, then the one before it: there is no
    deadlock. Requests without any memory wait until no other request is waiting.
    """

    def __init__(self, bytes_max: int) -> None:
        self._available_bytes = bytes_max
        self._waiting: dict[GrantCallback, tuple[int, int, bool]] = {}

    @property
    def available_bytes(self) -> int:
        """Bytes that no request holds."""
        return self._available_bytes

    @property
    def has_waiters(self) -> bool:
        """True if a request is waiting for memory."""
        return bool(self._waiting)

    def try_allocate(
        self, count: int, lacking: int, granted: GrantCallback, *, is_first: bool
    ) -> bool:
        """Allocate ``count`` bytes now if possible, otherwise register a callback.

        Args:
            count: bytes to allocate.
            lacking: bytes that the request needs until it is complete.
            granted: called once the bytes are allocated, if they are not now.
            is_first: True if the request has no memory yet.

        Returns:
            True if the bytes are allocated.
        """
        if lacking > self._available_bytes or (is_first and self._waiting):
            self._waiting[granted] = count, lacking, is_first
            return False
        self._available_bytes -= count
        return True

    def release(self, count: int) -> None:
        """Return bytes to the pool, and serve waiting requests."""
        self._available_bytes += count
        self._grant_waiters()

    def cancel_wait(self, granted: GrantCallback) -> None:
        """Cancel a waiting request."""
        if self._waiting.pop(granted, None) is not None:
            self._grant_waiters()

    def _grant_waiters(self) -> None:
        while (granted := self._next_waiter()) is not None:
            self._available_bytes -= self._waiting.pop(granted)[0]
            granted()

    def _next_waiter(self) -> GrantCallback | None:
        """Return the next request to serve: the oldest one that fits."""
        for at, (granted, (_, lacking, is_first)) in enumerate(self._waiting.items()):
            if lacking <= self._available_bytes and not (is_first and at):
                return granted
        return None
