"""Time window of a join: the records to read and the rows that are complete; no I/O.

A left record at time t matches right records with its key from t - within to t + within. The
watermark of a partition is the timestamp of its latest right record, minus ``late``. A left record
is complete when the watermark is past t + within: no more matches can arrive.

Left records are written in offset order. An incomplete record delays the records after it, at most
until it is complete itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from partage.pipelines.offset_spans import OffsetSpan


class JoinWindow(msgspec.Struct, frozen=True):
    """Maximum time between matching records, and maximum lateness of right records."""

    within_ms: int
    late_ms: int

    def right_start_ms(self, earliest_left_ms: int) -> int:
        """Return the timestamp from which right records are needed."""
        return max(earliest_left_ms - self.within_ms, 0)

    def last_complete_ms(self, latest_right_ms: int) -> int:
        """Return the latest timestamp at which a left record is complete."""
        return latest_right_ms - self.late_ms - self.within_ms - 1


def left_end_offsets(offset: Mapping[str, Any], left: str, right: str) -> dict[int, int]:
    """Return the end offsets of the left topic, for partitions that the query owns in both topics.

    Args:
        offset: the stored end offset of the batch (`partage.spark.stream.offset`).
        left: the left topic.
        right: the right topic.
    """
    ranges = offset["ranges"]
    ours, theirs = ranges.get(left, {}), ranges.get(right, {})
    return {int(partition): span[1] for partition, span in ours.items() if partition in theirs}


def pending_spans(done: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, OffsetSpan]:
    """Return the span to write of each partition: from the end of the output to these offsets.

    Rows are written in offset order. So an offset before the output's end is either written or has
    no record.
    """
    found = {partition: OffsetSpan(done.get(partition, 0), end) for partition, end in ends.items()}
    return {partition: span for partition, span in found.items() if len(span) > 0}
