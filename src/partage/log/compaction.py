"""Compaction: of each key in the closed segments only the last record stays.

In three parts, so that the heavy one can run in a thread while appends go on:

1. on the loop, `PartitionLog.plan_compaction` decides what is to be done;
2. in a thread, `rewriting.compact` copies what stays into new files and makes them durable;
3. on the loop, `PartitionLog.swap_in` renames a few files and uses them from then on; and in a
   thread again, `swapping.end_swap` removes the old ones.

Offsets, times and the fields of producers stay as they were. A record without a value (a
tombstone) stays for ``delete.retention.ms`` after the compaction that first met it, so that who
reads from the start and has seen the key's old value also sees that it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from partage.log.config import LogConfig
from partage.log.outcomes import Step
from partage.log.swapping import Progress, Round, Swap

_ROUNDS_A_RETENTION: Final = 16


class ClosedSegment(msgspec.Struct, frozen=True):
    """What compaction looks at in a segment that is closed and durable."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction to be done: of all ``segments``, which end at ``end_offset``."""

    directory: str
    config: LogConfig
    now_ms: int
    segments: Sequence[ClosedSegment]
    progress: Progress
    producers_last: frozenset[int]  # batches that end here are kept, if need be empty
    checkpoint: Step

    @property
    def end_offset(self) -> int:
        """The offset after the last record that is looked at."""
        return self.segments[-1].end_offset

    @property
    def tombstones_end(self) -> int:
        """Tombstones before this offset have been kept long enough."""
        ripe_ms = self.now_ms - self.config.delete_retention_ms
        return max(
            (one.end_offset for one in self.progress.rounds if one.at_ms <= ripe_ms), default=0
        )

    def progress_to(self, end_offset: int) -> Progress:
        """The progress once everything before ``end_offset`` has been compacted."""
        retention_ms, rounds = self.config.delete_retention_ms, list(self.progress.rounds)
        while len(rounds) > 1 and rounds[1].at_ms <= self.now_ms - retention_ms:
            del rounds[0]
        if not rounds or self.now_ms - rounds[-1].at_ms >= retention_ms // _ROUNDS_A_RETENTION:
            rounds.append(Round(end_offset, self.now_ms))
        return Progress(end_offset, rounds)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that has been done, except for the swap: base offset and size of each new
    segment, in the place of those that were planned.
    """

    plan: Plan
    segments: Sequence[tuple[int, int]]
    swap: Swap


def cleanable(
    segments: Sequence[ClosedSegment], config: LogConfig, progress: Progress, now_ms: int
) -> Sequence[ClosedSegment]:
    """The segments to be compacted now, from the first on; none where it isn't worth while yet."""
    old_enough_ms = now_ms - config.min_compaction_lag_ms
    young = (at for at, one in enumerate(segments) if one.newest_ms > old_enough_ms)
    ripe = segments[: next(young, len(segments))] if config.min_compaction_lag_ms else segments
    dirty = [one for one in ripe if one.end_offset > progress.cleaned_to and one.size]
    total_bytes = sum(one.size for one in ripe)
    dirty_bytes = sum(one.size for one in dirty)
    if not dirty_bytes:
        return []
    is_overdue = now_ms - dirty[0].newest_ms > config.max_compaction_lag_ms
    is_worth_while = dirty_bytes >= config.min_cleanable_dirty_ratio * total_bytes
    return ripe if is_overdue or is_worth_while else []
