"""Sets of records as topic, partition and offset."""

from __future__ import annotations

Record = tuple[str, int, int]


def ends(records: set[Record]) -> dict[tuple[str, int], int]:
    """Return the offset after the last record of each partition."""
    found: dict[tuple[str, int], int] = {}
    for topic, partition, offset in records:
        found[topic, partition] = max(found.get((topic, partition), 0), offset + 1)
    return found


def without_gaps(records: set[Record]) -> set[Record]:
    """Return the records that gapless offsets from 0 to the last record would give."""
    return {
        (topic, partition, offset)
        for (topic, partition), end in ends(records).items()
        for offset in range(end)
    }
