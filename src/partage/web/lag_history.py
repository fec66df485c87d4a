"""Numbers over time, in bounded memory."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

FINE_MAX: Final = 300
COARSE_MAX: Final = 360
COARSE_MS: Final = 60_000
_LAG_MAX: Final = 2**63 - 1  # A record in the topic of events may hold any number.


class Point(NamedTuple):
    """A value at a time, in ms since the epoch."""

    at_ms: int
    value: int


class RingBuffer:
    """The last ``size_max`` points, in 16 bytes each."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._times = array("q")
        self._values = array("q")

    def __len__(self) -> int:
        return min(len(self._times), self._size_max)

    def add(self, at_ms: int, value: int) -> None:
        """Add a point. A point earlier than the last one is ignored."""
        if self._times and at_ms < self._times[-1]:
            return
        self._times.append(at_ms)
        self._values.append(value)
        # Delete a fifth at a time, so that not every addition moves the arrays.
        if len(self._times) >= self._size_max + max(self._size_max // 5, 1):
            del self._times[: -self._size_max]
            del self._values[: -self._size_max]

    def raise_last(self, value: int) -> None:
        """Raise the last point to at least this value."""
        self._values[-1] = max(self._values[-1], value)

    def points(self) -> list[Point]:
        """Return all points, oldest first."""
        times, values = self._times[-self._size_max :], self._values[-self._size_max :]
        return [Point(*each) for each in zip(times, values, strict=True)]

    @property
    def last_ms(self) -> int | None:
        """Time of the last point."""
        return self._times[-1] if self._times else None


class LagHistory:
    """Lag of a group over time, in bounded memory.

    It keeps the last `FINE_MAX` samples, and the maximum per minute for `COARSE_MAX` minutes.
    """

    def __init__(self) -> None:
        self._fine = RingBuffer(FINE_MAX)
        self._coarse = RingBuffer(COARSE_MAX)

    def add(self, at_ms: int, lag: int) -> None:
        """Add a lag in records at a time. A negative lag counts as 0."""
        lag = min(max(lag, 0), _LAG_MAX)
        if self._fine.last_ms is not None and at_ms < self._fine.last_ms:
            return
        self._fine.add(at_ms, lag)
        minute = at_ms - at_ms % COARSE_MS
        if self._coarse.last_ms == minute:
            self._coarse.raise_last(lag)
        else:
            self._coarse.add(minute, lag)

    def since(self, from_ms: int) -> list[Point]:
        """Return the points since a time.

        Points are samples as far as these reach, and one point per minute before.
        """
        fine = self._fine.points()
        if fine and (fine[0].at_ms <= from_ms or len(fine) < FINE_MAX):
            return [point for point in fine if point.at_ms >= from_ms]
        before = fine[0].at_ms if fine else 0
        coarse = [each for each in self._coarse.points() if each.at_ms >= from_ms]
        return [each for each in coarse if each.at_ms < before] + fine

    def latest(self, count: int) -> list[Point]:
        """Return the last ``count`` samples."""
        return self._fine.points()[-count:]
