"""Sets of offsets of one partition, kept as spans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class OffsetSpan(NamedTuple):
    """The offsets from ``first`` up to ``end``, which is not one of them."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


class OverlapError(ValueError):
    """Offsets that are in the set already."""


class OffsetSpans:
    """A set of offsets: spans in order that neither touch nor overlap."""

    def __init__(self, spans: Iterable[OffsetSpan] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[OffsetSpan]:
        return map(OffsetSpan, self._firsts, self._ends)

    def __len__(self) -> int:
        """How many offsets are in it."""
        return sum(self._ends) - sum(self._firsts)

    @property
    def end(self) -> int:
        """After the last offset that is in it; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def add(self, span: OffsetSpan) -> None:
        """Put a span in.

        Raises:
            Overlap: part of it is in the set; nothing is changed.
        """
        if len(span) <= 0:
            return
        if self.missing(span) != [span]:
            raise OverlapError(
                f"some offsets from {span.first} to {span.end} are already in the set"
            )
        # It may touch the span before it, the one after it, or both.
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first = min([span.first, *self._firsts[low:high]])
        end = max([span.end, *self._ends[low:high]])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def missing(self, span: OffsetSpan) -> list[OffsetSpan]:
        """The parts of a span that are not in the set, in order."""
        found = []
        at = span.first
        for place in range(bisect_right(self._ends, span.first), len(self._firsts)):
            if self._firsts[place] >= span.end:
                break
            if self._firsts[place] > at:
                found.append(OffsetSpan(at, self._firsts[place]))
            at = self._ends[place]
        if at < span.end:
            found.append(OffsetSpan(at, span.end))
        return found
