"""Sets of offsets of one partition, stored as spans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class OffsetSpan(NamedTuple):
    """The offsets from ``first`` up to, not including, ``end``."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


class OverlapError(ValueError):
    """An added span contains offsets that are already in the set."""


class OffsetSpans:
    """A set of offsets: sorted spans that neither touch nor overlap."""

    def __init__(self, spans: Iterable[OffsetSpan] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[OffsetSpan]:
        return map(OffsetSpan, self._firsts, self._ends)

    def __len__(self) -> int:
        """Return the number of offsets."""
        return sum(self._ends) - sum(self._firsts)

    @property
    def end(self) -> int:
        """The offset after the last one in the set; 0 if it is empty."""
        return self._ends[-1] if self._ends else 0

    def add(self, span: OffsetSpan) -> None:
        """Add a span.

        Raises:
            OverlapError: if an offset is already in the set, which is then unchanged.
        """
        if len(span) <= 0:
            return
        if self.missing(span) != [span]:
            raise OverlapError(
                f"some offsets from {span.first} to {span.end} are already in the set"
            )
        # It may touch the span before it, the span after it, or both.
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first = min([span.first, *self._firsts[low:high]])
        end = max([span.end, *self._ends[low:high]])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def missing(self, span: OffsetSpan) -> list[OffsetSpan]:
        """Return the parts of a span that are not in the set, in order."""
        found = []
        at = span.first
        for index in range(bisect_right(self._ends, span.first), len(self._firsts)):
            if self._firsts[index] >= span.end:
                break
            if self._firsts[index] > at:
                found.append(OffsetSpan(at, self._firsts[index]))
            at = self._ends[index]
        if at < span.end:
            found.append(OffsetSpan(at, span.end))
        return found
