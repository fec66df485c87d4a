"""Log compaction: the closed segments keep only the last record of each key.

It has three parts, so that appends continue while the expensive part runs in a thread:

1. On the event loop, `PartitionLog.plan_compaction` chooses the segments.
2. In a thread, `cleaner.compact` copies retained records into new files and makes them durable.
3. On the event loop, `PartitionLog.apply_compaction` renames a few files and uses them. Then, in a
   thread, `segment_swap.finish_swap` removes the old files.

Segments at or above the last stable offset are not compacted, because the transactions there may
still be aborted.

Offsets, timestamps and producer fields do not change. A tombstone (a record without a value) stays
for ``delete.retention.ms`` after the compaction that first saw it. So a consumer that reads from
the start and saw an old value of the key also sees its deletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from partage.log.catalogue.topic_config import LogConfig
from partage.log.compaction.segment_swap import CompactionProgress, CompactionRun, SegmentSwap
from partage.log.results import DurableStep
from partage.log.segments.aborted_index import AbortedIndex, AbortedTransaction

_ROUNDS_PER_RETENTION: Final = 16


class CleanableSegment(msgspec.Struct, frozen=True):
    """The facts about a closed and durable segment that compaction needs.

    ``oldest_ms`` is the time of its first record, as in KIP-354.
    """

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    oldest_ms: int


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A planned compaction of ``segments``, which end at ``end_offset``."""

    directory: str
    config: LogConfig
    now_ms: int
    segments: Sequence[CleanableSegment]
    progress: CompactionProgress
    producer_last_offsets: frozenset[int]  # last offsets of batches to keep, even if empty
    producer_epochs: Mapping[int, int]  # of producers of which only a marker is known
    aborted: Sequence[AbortedTransaction]  # that overlap the segments
    checkpoint: DurableStep

    @property
    def end_offset(self) -> int:
        """Offset after the last segment to compact."""
        return self.segments[-1].end_offset

    @property
    def tombstone_horizon(self) -> int:
        """Offset before which tombstones have been kept for ``delete.retention.ms``."""
        ripe_ms = self.now_ms - self.config.delete_retention_ms
        return max(
            (one.end_offset for one in self.progress.rounds if one.at_ms <= ripe_ms), default=0
        )

    def progress_to(self, end_offset: int) -> CompactionProgress:
        """Return the progress once everything before ``end_offset`` is compacted."""
        retention_ms = self.config.delete_retention_ms
        # A time that is not yet reached: the wall clock was set back since. With it, no later run
        # would be noted, and no tombstone removed, until that time.
        rounds = [
            CompactionRun(one.end_offset, min(one.at_ms, self.now_ms))
            for one in self.progress.rounds
        ]
        while len(rounds) > 1 and rounds[1].at_ms <= self.now_ms - retention_ms:
            del rounds[0]
        if not rounds or self.now_ms - rounds[-1].at_ms >= retention_ms // _ROUNDS_PER_RETENTION:
            rounds.append(CompactionRun(end_offset, self.now_ms))
        return CompactionProgress(end_offset, rounds)


class CompactedSegment(NamedTuple):
    """A new segment: its base offset, its size, and the transactions that its markers abort."""

    base_offset: int
    size: int
    aborted: AbortedIndex


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction before the swap: ``segments`` replace the planned ones."""

    plan: CompactionPlan
    segments: Sequence[CompactedSegment]
    swap: SegmentSwap


def find_cleanable(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    progress: CompactionProgress,
    now_ms: int,
) -> Sequence[CleanableSegment]:
    """Return the segments to compact now, from the first on; none if it is not yet worthwhile.

    Segments that were compacted before are old enough, whatever their timestamps, as in Kafka.
    """
    old_enough_ms = now_ms - config.min_compaction_lag_ms
    young = (
        at
        for at, one in enumerate(segments)
        if one.newest_ms > old_enough_ms and one.end_offset > progress.cleaned_to
    )
    ripe = segments[: next(young, len(segments))] if config.min_compaction_lag_ms else segments
    dirty = [one for one in ripe if one.end_offset > progress.cleaned_to and one.size]
    total_bytes = sum(one.size for one in ripe)
    dirty_bytes = sum(one.size for one in dirty)
    if not dirty_bytes:
        return []
    is_overdue = now_ms - dirty[0].oldest_ms > config.max_compaction_lag_ms
    is_worth_while = dirty_bytes > config.min_cleanable_dirty_ratio * total_bytes
    return ripe if is_overdue or is_worth_while else []
