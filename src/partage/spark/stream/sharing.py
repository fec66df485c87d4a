"""How many offsets a batch takes of each partition, and whether it is time for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from partage.client.metadata import TopicPartition

Sizes = Mapping[TopicPartition, int]

#: Spark's default of ``maxTriggerDelay``: 15 minutes.
DELAY_MAX_MS: Final = 15 * 60 * 1000


def shares(sizes: Sizes, limit: int | None) -> dict[TopicPartition, int]:
    """At most ``limit`` offsets in all, split in proportion to what there is.

    What division leaves over goes to those that came off worst, so that the sum is exact and every
    partition is read in the end.
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


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger may take: at most, at least, and for how long it waits for the least."""

    records_max: int | None = None
    records_min: int | None = None
    delay_max_ms: int = DELAY_MAX_MS

    def is_due(self, available: int, waited_ms: int | None) -> bool:
        """Whether to plan a batch of what there is; ``waited_ms`` None: there was none yet."""
        if self.records_min is None or available >= self.records_min or waited_ms is None:
            return True
        return waited_ms >= self.delay_max_ms
