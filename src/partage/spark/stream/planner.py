"""What a streaming query reads next, and what it may commit: decisions, no I/O.

For each partition that the query holds there is one number, its *position*: everything before it
is done, by this query or by others of its group. A batch reads from the positions on; when Spark
comes back with the end of a batch as its start, that batch is written, and the positions move
there. So planning changes nothing, a plan that Spark dropped is made again, and what may be
committed is what is done, never what is under way.

The rules that tests hold it to:

1. A position never moves back while a partition is held, except where records have gone
   (`Planner.moved`).
2. A partition's first position is the later of what the group has committed and of what this
   query's checkpoint has done; where neither is known, what ``startingOffsets`` says.
3. What is due to be committed is ahead of what the group has.
4. A range of a plan begins at the position and ends within what there is, and all of them
   together keep to the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.client.metadata import TopicPartition
from partage.spark.stream.offset import INITIAL, StreamOffset, TopicMark, Whose
from partage.spark.stream.sharing import Pace, shares

#: Which holding of a partition it is: another number when it was given up, or lost, in between.
Tenure = int
Ends = Mapping[TopicPartition, int]


class Held(msgspec.Struct):
    """A partition that is held, from the moment that its first position is known."""

    position: int
    committed: int | None
    was_moved: bool = False


class Planner:
    """One query's plans, from one batch's end to the next."""

    def __init__(self) -> None:
        self._start = INITIAL
        self._tenures: dict[TopicPartition, Tenure] = {}
        self._held: dict[TopicPartition, Held] = {}
        self._planned_ms: int | None = None

    # What has happened.

    def done(self, start: StreamOffset) -> None:
        """The batch that ends in ``start`` is written, and so are all before it."""
        self._start = start
        for partition, held in self._held.items():
            held.position = max(held.position, self._done_to(partition, held.position))

    def holds(self, tenures: Mapping[TopicPartition, Tenure]) -> None:
        """These are the query's now. One of another tenure is as good as new."""
        self._held = {
            partition: held
            for partition, held in self._held.items()
            if tenures.get(partition) == self._tenures[partition]
        }
        self._tenures = dict(tenures)

    @property
    def unplaced(self) -> list[TopicPartition]:
        """What is held and has no position yet; see `place`."""
        return sorted(partition for partition in self._tenures if partition not in self._held)

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether the checkpoint tells how far a partition is done."""
        return partition in self._start.ranges

    def place(self, partition: TopicPartition, committed: int | None, otherwise: int) -> None:
        """A partition's first position: what is committed, what is done, or else that offset."""
        if partition not in self._tenures:
            return  # given up meanwhile
        known = -1 if committed is None else committed
        position = self._done_to(partition, known)
        self._held[partition] = Held(otherwise if position < 0 else position, committed)

    def moved(self, partition: TopicPartition, position: int) -> None:
        """Records have gone, and reading goes on there, be it before what was done."""
        held = self._held[partition]
        if position < held.position:
            held.committed = None
            held.was_moved = True
            ranges = {p: r for p, r in self._start.ranges.items() if p != partition}
            self._start = msgspec.structs.replace(self._start, ranges=ranges)
        held.position = position

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these now."""
        for partition, offset in offsets.items():
            if partition in self._held:
                self._held[partition].committed = offset

    def _done_to(self, partition: TopicPartition, otherwise: int) -> int:
        _, last = self._start.ranges.get(partition, (0, otherwise))
        return max(last, otherwise)

    # What to do.

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offsets to read next, of what has one."""
        return {partition: held.position for partition, held in self._held.items()}

    def due(self) -> dict[TopicPartition, int]:
        """What to commit: where the query is ahead of what the group has."""
        return {
            partition: held.position
            for partition, held in self._held.items()
            if held.position > (-1 if held.committed is None else held.committed)
        }

    def available(self, ends: Ends) -> dict[TopicPartition, int]:
        """How many offsets there are to read of each partition, of those whose end is known."""
        return {
            partition: max(0, ends[partition] - held.position)
            for partition, held in self._held.items()
            if partition in ends
        }

    def is_due(self, ends: Ends, pace: Pace, now_ms: int) -> bool:
        """Whether there is to be a batch."""
        if any(held.was_moved for held in self._held.values()):
            return True
        available = sum(self.available(ends).values())
        if not available:
            return False
        waited_ms = None if self._planned_ms is None else now_ms - self._planned_ms
        return pace.is_due(available, waited_ms)

    def plan(
        self,
        ends: Ends,
        pace: Pace,
        now_ms: int,
        whose: Whose,
        topics: Mapping[str, TopicMark],
    ) -> StreamOffset:
        """The next batch: of what is held and whose end is known, within the pace."""
        available = self.available(ends)
        taken = shares(available, pace.records_max)
        self._planned_ms = now_ms
        for held in self._held.values():
            held.was_moved = False
        return StreamOffset(
            seq=self._start.seq + 1,
            whose=whose,
            topics=topics,
            ranges={
                p: (held.position, held.position + taken.get(p, 0))
                for p, held in self._held.items()
            },
            lag={p: size - taken[p] for p, size in available.items()},
        )
