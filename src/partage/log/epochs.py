"""Leader epochs (KIP-101, KIP-320): the batches themselves are the history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.log.disk import Disk
from partage.log.reading import FAR_BYTES, headers
from partage.log.times import Readable


class EpochEnd(NamedTuple):
    """The largest epoch that is not above the asked one, and the offset at which it ended."""

    leader_epoch: int
    end_offset: int


UNDEFINED: Final = EpochEnd(-1, -1)


def end_of_epoch(
    disk: Disk, readable: Sequence[Readable], epoch: int, current: int, end_offset: int
) -> EpochEnd:
    """Where an epoch ended, as OffsetForLeaderEpoch answers it.

    The current epoch needs no read; an older one reads headers in one segment.
    """
    if epoch == current:
        return EpochEnd(epoch, end_offset)
    if not 0 <= epoch < current:
        return UNDEFINED
    starts = [
        (first.leader_epoch, first.base_offset, part)
        for part in readable
        if part.size and (first := part.segment.first(disk))
    ]
    later = bisect_right(starts, epoch, key=lambda start: start[0])
    after = starts[later][1] if later < len(starts) else end_offset
    if later == 0:
        return EpochEnd(epoch, after)
    floor, _, part = starts[later - 1]
    for _, header in headers(disk, part.segment.path, 0, part.size, FAR_BYTES):
        if header.leader_epoch > epoch:
            return EpochEnd(floor, header.base_offset)
        floor = header.leader_epoch
    return EpochEnd(floor, after)
