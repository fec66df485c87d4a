"""Numbers over time, in bounded memory."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

FINE_MAX: Final = 300
COARSE_MAX: Final = 360
COARSE_MS: Final = 60_000
_LAG_MAX: Final = 2**63 - 1  # somebody may have written that into the topic of events


class Point(NamedTuple):
    """A number at a time, in ms since the epoch."""

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
        """A point; those that come with an earlier time than the last are left out."""
        if self._times and at_ms < self._times[-1]:
            return
        self._times.append(at_ms)
        self._values.append(value)
        # A fifth at a time, so that the rest is not moved for each new one.
        if len(self._times) >= self._size_max + max(self._size_max // 5, 1):
            del self._times[: -self._size_max]
            del self._values[: -self._size_max]

    def raise_last(self, value: int) -> None:
        """The last point is at least this high."""
        self._values[-1] = max(self._values[-1], value)

    def points(self) -> list[Point]:
        """All points, the oldest first."""
        times, values = self._times[-self._size_max :], self._values[-self._size_max :]
        return [Point(*each) for each in zip(times, values, strict=True)]

    @property
    def last_ms(self) -> int | None:
        """The time of the last point."""
        return self._times[-1] if self._times else None


class LagHistory:
    """A group's lag: each sample of the last `FINE_MAX`, and the highest of each minute of the last
    `COARSE_MAX`.
    """

    def __init__(self) -> None:
        self._fine = RingBuffer(FINE_MAX)
        self._coarse = RingBuffer(COARSE_MAX)

    def add(self, at_ms: int, lag: int) -> None:
        """The lag, in records, at a time. Where more is committed than there is, it is 0."""
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
        """The points from a time on: fine where they reach back so far, or else by the minute."""
        fine = self._fine.points()
        if fine and (fine[0].at_ms <= from_ms or len(fine) < FINE_MAX):
            return [point for point in fine if point.at_ms >= from_ms]
        before = fine[0].at_ms if fine else 0
        coarse = [each for each in self._coarse.points() if each.at_ms >= from_ms]
        return [each for each in coarse if each.at_ms < before] + fine

    def latest(self, count: int) -> list[Point]:
        """The last points as they came."""
        return self._fine.points()[-count:]
