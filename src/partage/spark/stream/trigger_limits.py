"""Limits of a trigger: the offsets to take of each partition, and the time for a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from partage.model.topic_partition import TopicPartition

Sizes = Mapping[TopicPartition, int]

#: Spark's default of ``maxTriggerDelay``: 15 minutes.
TRIGGER_DELAY_MAX_MS: Final = 15 * 60 * 1000


def share_limit(sizes: Sizes, limit: int | None) -> dict[TopicPartition, int]:
    """Split at most ``limit`` offsets among the partitions, in proportion to their sizes.

    The offsets left over by integer division go to the partitions with the largest remainders. So
    the sum is exact, and no partition starves.
    """
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(sizes)
    found = {p: size * limit // total for p, size in sizes.items()}
    left = limit - sum(found.values())
    worst_off = sorted(sizes, key=lambda p: (-(sizes[p] * limit % total), p))
    for partition in worst_off[:left]:
        found[partition] += 1
    return found


class TriggerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum and minimum number of offsets in a batch, and the maximum wait for the minimum."""

    records_max: int | None = None
    records_min: int | None = None
    delay_max_ms: int = TRIGGER_DELAY_MAX_MS

    def is_batch_due(self, available: int, waited_ms: int | None) -> bool:
        """True if a batch should be planned.

        Args:
            available: number of unread offsets.
            waited_ms: time since the last plan; None before the first plan.
        """
        if self.records_min is None or available >= self.records_min or waited_ms is None:
            return True
        return waited_ms >= self.delay_max_ms
