"""What all large requests together may take of the memory (``queued.max.request.bytes``)."""

from __future__ import annotations

from collections.abc import Callable

Granted = Callable[[], None]


class Budget:
    """Bytes that large requests hold, from their arrival until they are served.

    A request gets its room piece by piece, as it arrives: what it only claims costs nothing. It
    gets a piece only if what it lacks to its end would fit as well. So the last that got one can
    be completed, then the one before it, and they never end up waiting for each other (the
    banker's rule). Requests that have nothing yet wait until nobody else does.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._waiting: dict[Granted, tuple[int, int, bool]] = {}

    @property
    def left(self) -> int:
        """The bytes that nobody holds."""
        return self._left

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take(self, count: int, lacking: int, granted: Granted, *, is_first: bool) -> bool:
        """Whether a request that lacks ``lacking`` bytes to its end may have ``count`` now.

        If not, ``granted`` is called once it has them. ``is_first``: it has nothing yet.
        """
        if lacking > self._left or (is_first and self._waiting):
            self._waiting[granted] = count, lacking, is_first
            return False
        self._left -= count
        return True

    def give(self, count: int) -> None:
        """Bytes are free again."""
        self._left += count
        self._serve()

    def forget(self, granted: Granted) -> None:
        """Somebody waits no more."""
        if self._waiting.pop(granted, None) is not None:
            self._serve()

    def _serve(self) -> None:
        while (granted := self._next()) is not None:
            self._left -= self._waiting.pop(granted)[0]
            granted()

    def _next(self) -> Granted | None:
        """Who is served next, in the order of asking as far as there is room."""
        for at, (granted, (_, lacking, is_first)) in enumerate(self._waiting.items()):
            if lacking <= self._left and not (is_first and at):
                return granted
        return None
