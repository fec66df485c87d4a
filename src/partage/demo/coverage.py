"""Which records were read, and how often: a count for each offset of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_TIMES_MAX: Final = 255
_ONE_MORE: Final = bytes(min(n + 1, _TIMES_MAX) for n in range(256))


class Tally(NamedTuple):
    """Records that are there, those never read, and the reads beyond the first of each."""

    records: int
    missed: int
    again: int


class Coverage:
    """Counts the reads of a topic's records; an offset is counted up to 255 times."""

    def __init__(self) -> None:
        self._times: dict[int, bytearray] = {}
        self.reads = 0

    def add(self, partition: int, first: int, last: int) -> None:
        """The records from ``first`` to ``last`` were read."""
        times = self._times.setdefault(partition, bytearray())
        if last >= len(times):
            times.extend(bytes(last + 1 - len(times)))
        times[first : last + 1] = times[first : last + 1].translate(_ONE_MORE)
        self.reads += last + 1 - first

    def tally(self, ends: Mapping[int, int]) -> Tally:
        """Against the offsets at which the partitions end, all of which begin at 0."""
        missed = again = 0
        for partition, end in ends.items():
            times = self._times.get(partition, bytearray())[:end]
            missed += end - len(times) + times.count(0)
            again += sum(times) - (len(times) - times.count(0))
        return Tally(sum(ends.values()), missed, again)
