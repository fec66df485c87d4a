"""What of a batch an archive takes: the core, without I/O.

A batch brings ranges of offsets. What the archive does not have yet is taken; of the rest each row
is refused, because another query, or this one before it was killed, has brought it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from partage.pipelines.archive.manifest import Manifest
from partage.pipelines.offset_spans import OffsetSpan

#: A topic's partition.
Place: TypeAlias = tuple[str, int]


def batch_ranges(parts: Iterable[tuple[Place, OffsetSpan]]) -> dict[Place, OffsetSpan]:
    """The ranges of a batch: for each partition from its first offset to its last.

    A batch reads one range of each partition without a gap, so nobody else's offsets lie between.
    """
    found: dict[Place, OffsetSpan] = {}
    for place, span in parts:
        known = found.get(place, span)
        found[place] = OffsetSpan(min(known.first, span.first), max(known.end, span.end))
    return found


def unarchived_spans(
    manifest: Manifest, ranges: Mapping[Place, OffsetSpan]
) -> dict[Place, list[OffsetSpan]]:
    """For each partition the spans to be taken; none where all is there already."""
    return {place: manifest.missing_spans(*place, span) for place, span in ranges.items()}
