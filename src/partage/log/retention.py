"""Which segments are too old, too many or below the log's start, as Kafka decides it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.config import LogConfig


class Aging(msgspec.Struct, frozen=True):
    """What retention looks at in a segment."""

    size: int
    newest_ms: int  # its largest timestamp, or when it was last known to be written
    end_offset: int  # of the last record, and one more
    is_last: bool


def count_expired(
    segments: Sequence[Aging],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments, from the oldest on, are to be removed.

    Never one with records above the high watermark, and not a last one that is empty.
    """
    size = sum(segment.size for segment in segments)
    for count, segment in enumerate(segments):
        kept = segment.end_offset > high_watermark or (segment.is_last and not segment.size)
        below_start = not segment.is_last and segment.end_offset <= log_start_offset
        if kept or not (below_start or _is_expired(segment, size, config, now_ms)):
            return count
        size -= segment.size
    return len(segments)


def _is_expired(segment: Aging, log_size: int, config: LogConfig, now_ms: int) -> bool:
    """Whether a segment goes; ``log_size`` counts it and all that follow."""
    if not config.deletes:
        return False
    too_old = 0 <= config.retention_ms < now_ms - segment.newest_ms
    too_many = 0 <= config.retention_bytes <= log_size - segment.size
    return too_old or too_many
