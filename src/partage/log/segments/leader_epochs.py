"""Leader epoch look-up (KIP-101, KIP-320). The batches are the epoch history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.log.disk import Disk
from partage.log.segments.batch_reader import SCAN_READ_BYTES, read_headers
from partage.log.segments.timestamp_lookup import ReadableSegment


class EpochEnd(NamedTuple):
    """The largest epoch that is not above the requested one, and its end offset."""

    leader_epoch: int
    end_offset: int


UNDEFINED_EPOCH_END: Final = EpochEnd(-1, -1)


def find_epoch_end(
    disk: Disk, readable: Sequence[ReadableSegment], epoch: int, current: int, end_offset: int
) -> EpochEnd:
    """Return the end of an epoch for OffsetForLeaderEpoch.

    The current epoch needs no read. An older one reads the headers of one segment.
    """
    if epoch == current:
        return EpochEnd(epoch, end_offset)
    if not 0 <= epoch < current:
        return UNDEFINED_EPOCH_END
    starts = [
        (first.leader_epoch, first.base_offset, part)
        for part in readable
        if part.size and (first := part.segment.first_header(disk))
    ]
    later = bisect_right(starts, epoch, key=lambda start: start[0])
    after = starts[later][1] if later < len(starts) else end_offset
    if later == 0:
        return EpochEnd(epoch, after)
    floor, _, part = starts[later - 1]
    for _, header in read_headers(disk, part.segment.path, 0, part.size, SCAN_READ_BYTES):
        if header.leader_epoch > epoch:
            return EpochEnd(floor, header.base_offset)
        floor = header.leader_epoch
    return EpochEnd(floor, after)
