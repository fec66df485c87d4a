"""What of a partition can be put out, and what has to be read for it: the core, without I/O.

A left record at time t may match right ones of its key from t - within to t + within. No more of
those come once a right record of its partition, later by more than ``late``, has been seen: that is
the partition's watermark. Left records are put out in the order of their offsets; one that has to
wait holds up those behind it, for no longer than it waits itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from partage.pipelines.offset_spans import OffsetSpan


class JoinWindow(msgspec.Struct, frozen=True):
    """How far in time records may lie apart that match, and how late the right ones may come."""

    within_ms: int
    late_ms: int

    def right_start_ms(self, earliest_left_ms: int) -> int:
        """The time from which on right records are to be read."""
        return max(earliest_left_ms - self.within_ms, 0)

    def last_complete_ms(self, latest_right_ms: int) -> int:
        """The latest time of a left record for which all have come."""
        return latest_right_ms - self.late_ms - self.within_ms - 1


def left_end_offsets(offset: Mapping[str, Any], left: str, right: str) -> dict[int, int]:
    """Where a batch leaves the left topic, for each partition that the query holds of both topics.

    ``offset`` is what Spark keeps of the batch (`partage.spark.stream.offset`).
    """
    ranges = offset["ranges"]
    ours, theirs = ranges.get(left, {}), ranges.get(right, {})
    return {int(partition): span[1] for partition, span in ours.items() if partition in theirs}


def pending_spans(done: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, OffsetSpan]:
    """What is to be put out of each partition: from where the output ends up to these offsets.

    What lies before the output's end was put out, or is no record: it is put out in order.
    """
    found = {partition: OffsetSpan(done.get(partition, 0), end) for partition, end in ends.items()}
    return {partition: span for partition, span in found.items() if len(span) > 0}
