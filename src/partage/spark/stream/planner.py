"""Planner of a streaming query: the next offset ranges to read and the offsets to commit; no I/O.

The planner keeps one number for each owned partition, its *position*. All records before it are
processed, by this query or by other members of the group. A batch reads from the positions. When
Spark passes the end of a batch as the start of the next one, that batch is written, and the
positions move to its end.

So `plan` moves no position, and a plan that Spark dropped can be made again. Only processed offsets
can be committed, never those of a batch in progress.

Rules that the tests check:

1. A position never decreases while a partition is owned, unless records were deleted
   (`Planner.reset_position`).
2. The first position of a partition is the later of the group's committed offset and the end in
   this query's checkpoint. If neither is known, ``startingOffsets`` decides.
3. An offset to commit is always ahead of the group's committed offset.
4. Each range of a plan begins at the position and ends at or before the partition's end. All ranges
   together respect the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.spark.stream.offset import INITIAL_OFFSET, QueryIdentity, StreamOffset, TopicSnapshot
from partage.spark.stream.trigger_limits import TriggerLimits, share_limit

#: Identifies one period of ownership: it changes if the partition was revoked or lost in between.
OwnershipId = int
Ends = Mapping[TopicPartition, int]


class HeldPartition(msgspec.Struct):
    """An owned partition whose first position is known."""

    position: int
    committed: int | None
    was_reset: bool = False


class Planner:
    """Plans the batches of one query."""

    def __init__(self) -> None:
        self._start = INITIAL_OFFSET
        self._owned: dict[TopicPartition, OwnershipId] = {}
        self._held: dict[TopicPartition, HeldPartition] = {}
        self._planned_ms: int | None = None

    # Events.

    def complete_batch(self, start: StreamOffset) -> None:
        """Record that the batch that ends in ``start``, and all batches before it, are written."""
        self._start = start
        for partition, held in self._held.items():
            held.position = max(held.position, self._end_of_done(partition, held.position))

    def update_owned(self, tenures: Mapping[TopicPartition, OwnershipId]) -> None:
        """Replace the owned partitions. A partition with a new ownership id loses its position."""
        self._held = {
            partition: held
            for partition, held in self._held.items()
            if tenures.get(partition) == self._owned[partition]
        }
        self._owned = dict(tenures)

    @property
    def without_position(self) -> list[TopicPartition]:
        """Owned partitions that have no position yet; see `set_first_position`."""
        return sorted(partition for partition in self._owned if partition not in self._held)

    def is_in_checkpoint(self, partition: TopicPartition) -> bool:
        """True if the checkpoint has an end offset of the partition."""
        return partition in self._start.ranges

    def set_first_position(
        self, partition: TopicPartition, committed: int | None, otherwise: int
    ) -> None:
        """Set the first position of an owned partition; ignore other partitions.

        Args:
            partition: the partition.
            committed: the group's committed offset, if any.
            otherwise: the position if neither the group nor the checkpoint has an offset.
        """
        if partition not in self._owned:
            return  # no longer owned
        known = -1 if committed is None else committed
        position = self._end_of_done(partition, known)
        self._held[partition] = HeldPartition(otherwise if position < 0 else position, committed)

    def reset_position(self, partition: TopicPartition, position: int) -> None:
        """Continue at another position because records were deleted. It may be before the current
        one.
        """
        held = self._held[partition]
        if position < held.position:
            held.committed = None
            held.was_reset = True
            ranges = {p: r for p, r in self._start.ranges.items() if p != partition}
            self._start = msgspec.structs.replace(self._start, ranges=ranges)
        held.position = position

    def record_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record offsets that the group has committed."""
        for partition, offset in offsets.items():
            if partition in self._held:
                self._held[partition].committed = offset

    def _end_of_done(self, partition: TopicPartition, otherwise: int) -> int:
        _, last = self._start.ranges.get(partition, (0, otherwise))
        return max(last, otherwise)

    # Decisions.

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition that has a position."""
        return {partition: held.position for partition, held in self._held.items()}

    def offsets_to_commit(self) -> dict[TopicPartition, int]:
        """Return the positions that are ahead of the group's committed offsets."""
        return {
            partition: held.position
            for partition, held in self._held.items()
            if held.position > (-1 if held.committed is None else held.committed)
        }

    def available(self, ends: Ends) -> dict[TopicPartition, int]:
        """Return the number of unread offsets of each partition whose end is known."""
        return {
            partition: max(0, ends[partition] - held.position)
            for partition, held in self._held.items()
            if partition in ends
        }

    def is_batch_due(self, ends: Ends, limits: TriggerLimits, now_ms: int) -> bool:
        """True if the next batch should be planned now."""
        if any(held.was_reset for held in self._held.values()):
            return True
        available = sum(self.available(ends).values())
        if not available:
            return False
        waited_ms = None if self._planned_ms is None else now_ms - self._planned_ms
        return limits.is_batch_due(available, waited_ms)

    def plan(
        self,
        ends: Ends,
        limits: TriggerLimits,
        now_ms: int,
        identity: QueryIdentity,
        topics: Mapping[str, TopicSnapshot],
    ) -> StreamOffset:
        """Plan the next batch from the positions.

        Args:
            ends: end offset of each readable partition. Partitions without one are not read; the
                batch has their position, with an empty range.
            limits: limits of the trigger.
            now_ms: current time, for ``maxTriggerDelay``.
            identity: identity to store in the offset.
            topics: topic snapshots to store in the offset.

        Returns:
            The end offset of the batch, with its ranges and the lag that remains after it.
        """
        available = self.available(ends)
        taken = share_limit(available, limits.records_max)
        self._planned_ms = now_ms
        for held in self._held.values():
            held.was_reset = False
        return StreamOffset(
            seq=self._start.seq + 1,
            identity=identity,
            topics=topics,
            ranges={
                p: (held.position, held.position + taken.get(p, 0))
                for p, held in self._held.items()
            },
            lag={p: size - taken[p] for p, size in available.items()},
        )
