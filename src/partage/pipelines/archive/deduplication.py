"""Deduplication of batches against the manifest; no I/O.

A batch has offset ranges. Offsets that the archive lacks are archived. Rows with other offsets are
refused: another query, or an earlier attempt of this one, has archived them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partage.model.topic_partition import TopicPartition
from partage.pipelines.archive.manifest import Manifest
from partage.pipelines.offset_spans import OffsetSpan

#: A topic's partition.


def batch_ranges(
    parts: Iterable[tuple[TopicPartition, OffsetSpan]],
) -> dict[TopicPartition, OffsetSpan]:
    """Return the offset range of each partition in a batch, from its first to its last offset.

    A batch reads one contiguous range of each partition, so all offsets in between belong to it.
    """
    found: dict[TopicPartition, OffsetSpan] = {}
    for place, span in parts:
        known = found.get(place, span)
        found[place] = OffsetSpan(min(known.first, span.first), max(known.end, span.end))
    return found


def unarchived_spans(
    manifest: Manifest, ranges: Mapping[TopicPartition, OffsetSpan]
) -> dict[TopicPartition, list[OffsetSpan]]:
    """Return the spans of each partition that the manifest lacks; an empty list if it has all."""
    return {place: manifest.missing_spans(*place, span) for place, span in ranges.items()}
