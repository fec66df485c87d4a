"""What all large requests together may take of the memory (``queued.max.request.bytes``)."""

from __future__ import annotations

from collections.abc import Callable

GrantCallback = Callable[[], None]


class MemoryPool:
    """Bytes that large requests hold, from their arrival until they are served.

    A request gets its room piece by piece, as it arrives: what it only claims costs nothing. It
    gets a piece only if what it lacks to its end would fit as well. So the last that got one can
    be completed, then the one before it, and they never end up waiting for each other (the
    banker's rule). Requests that have nothing yet wait until nobody else does.
    """

    def __init__(self, bytes_max: int) -> None:
        self._available_bytes = bytes_max
        self._waiting: dict[GrantCallback, tuple[int, int, bool]] = {}

    @property
    def available_bytes(self) -> int:
        """The bytes that nobody holds."""
        return self._available_bytes

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def try_allocate(
        self, count: int, lacking: int, granted: GrantCallback, *, is_first: bool
    ) -> bool:
        """Whether a request that lacks ``lacking`` bytes to its end may have ``count`` now.

        If not, ``granted`` is called once it has them. ``is_first``: it has nothing yet.
        """
        if lacking > self._available_bytes or (is_first and self._waiting):
            self._waiting[granted] = count, lacking, is_first
            return False
        self._available_bytes -= count
        return True

    def release(self, count: int) -> None:
        """Bytes are free again."""
        self._available_bytes += count
        self._grant_waiters()

    def cancel_wait(self, granted: GrantCallback) -> None:
        """Somebody waits no more."""
        if self._waiting.pop(granted, None) is not None:
            self._grant_waiters()

    def _grant_waiters(self) -> None:
        while (granted := self._next_waiter()) is not None:
            self._available_bytes -= self._waiting.pop(granted)[0]
            granted()

    def _next_waiter(self) -> GrantCallback | None:
        """Who is served next, in the order of asking as far as there is room."""
        for at, (granted, (_, lacking, is_first)) in enumerate(self._waiting.items()):
            if lacking <= self._available_bytes and not (is_first and at):
                return granted
        return None
