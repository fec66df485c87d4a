"""Retention: the segments that are too old, too many or below the log start offset, as in Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.catalogue.topic_config import LogConfig


class RetentionCandidate(msgspec.Struct, frozen=True):
    """The facts about a segment that retention needs."""

    size: int
    newest_ms: int  # its largest timestamp, or the time of the last append
    end_offset: int  # last offset + 1
    is_last: bool


def count_expired(
    segments: Sequence[RetentionCandidate],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """Return the number of oldest segments to remove.

    Never counts a segment with records above the high watermark, or a last segment that is empty.
    """
    size = sum(segment.size for segment in segments)
    for count, segment in enumerate(segments):
        kept = segment.end_offset > high_watermark or (segment.is_last and not segment.size)
        below_start = not segment.is_last and segment.end_offset <= log_start_offset
        if kept or not (below_start or _is_expired(segment, size, config, now_ms)):
            return count
        size -= segment.size
    return len(segments)


def _is_expired(segment: RetentionCandidate, log_size: int, config: LogConfig, now_ms: int) -> bool:
    """True if a segment has expired; ``log_size`` counts it and all later ones."""
    if not config.deletes:
        return False
    too_old = 0 <= config.retention_ms < now_ms - segment.newest_ms
    too_many = 0 <= config.retention_bytes <= log_size - segment.size
    return too_old or too_many
