"""Truncation of a damaged log, for ``partage log cut PATH --at POSITION``."""

from __future__ import annotations

import msgspec

from partage.log.catalogue.topic_catalogue import TopicCatalogue
from partage.log.checkpoints import Checkpoint, CheckpointFile
from partage.log.compaction.segment_swap import CompactionProgress, read_progress
from partage.log.disk import Disk
from partage.log.io import perform_step, replace_file
from partage.log.layout import (
    LOG_SUFFIX,
    PROGRESS_FILE,
    base_name,
    offset_from_name,
    partition_directory,
)
from partage.log.producer_state import ProducerStateManager
from partage.log.recovery.leftover_files import finish_interrupted_work, segment_bases
from partage.log.recovery.segment_scan import scan_segment
from partage.log.recovery.torn_tail import Truncation, set_aside_segment, truncate_tail
from partage.log.results import DurableStep
from partage.log.segments.segment import ActiveSegment

_REASON = "truncated by 'partage log cut'"


class TruncationError(ValueError):
    """Raised when a log cannot be truncated at this file or position; the message says why."""


def truncate_log(disk: Disk, path: str, position: int) -> list[Truncation]:
    """Truncate a partition's log at byte ``position`` of one of its segment files.

    No broker may be using the data directory. The removed bytes are kept beside the log. It is safe
    to repeat after a crash.

    Args:
        path: Segment file, relative to the data directory.
        position: Byte at which a batch begins, or the end of the file.

    Raises:
        TruncationError: There is no such segment, no batch begins at the position, or a batch
            before it is damaged.
        DamagedFileError: The list of topics cannot be read.
    """
    directory, name = path.rpartition("/")[0], base_name(path)
    base_offset = offset_from_name(name, LOG_SUFFIX)
    if base_offset is None or name not in disk.names(directory):
        raise TruncationError(f"segment file {path!r} does not exist")
    partitions = _partitions(TopicCatalogue.load(disk))
    if directory not in partitions:
        raise TruncationError(f"directory {directory!r} belongs to no topic in the catalogue")
    finish_interrupted_work(disk, directory)
    end_offset = _end_offset(disk, directory, base_offset, position)
    later = [base for base in segment_bases(disk, directory) if base > base_offset]
    cuts = [set_aside_segment(disk, directory, base, _REASON) for base in reversed(later)]
    cuts.append(truncate_tail(disk, path, position, _REASON))
    # Offsets from the end offset on will be reused, and are not compacted then. Gaps remain only
    # before it.
    cleaned_to = min(read_progress(disk, directory).cleaned_to, end_offset)
    replace_file(
        disk, f"{directory}/{PROGRESS_FILE}", msgspec.json.encode(CompactionProgress(cleaned_to))
    )
    key = partitions[directory]
    markers = CheckpointFile.load(disk, partitions.values())
    found = markers.get(*key) or Checkpoint()
    marker = Checkpoint(
        base_offset=base_offset,
        position=position,
        end_offset=end_offset,
        log_start_offset=min(found.log_start_offset, end_offset),
    )
    perform_step(disk, DurableStep(checkpoint=markers.slot(*key).prepare_write(marker)))
    return cuts


def _partitions(topics: TopicCatalogue) -> dict[str, tuple[bytes, int]]:
    """Return topic id and partition by directory."""
    return {
        partition_directory(topic.name, partition): (topic.topic_id, partition)
        for topic in topics
        for partition in range(topic.partition_count)
    }


def _end_offset(disk: Disk, directory: str, base_offset: int, position: int) -> int:
    """Return the offset that begins at a position; raise if a batch before it is invalid."""
    segment = ActiveSegment(directory, base_offset, 0, 0)
    if not 0 <= position <= disk.size(segment.path):
        raise TruncationError(
            f"{segment.path} has {disk.size(segment.path)} bytes: position {position} is outside"
        )
    end_offset, fault = scan_segment(
        disk, segment, position, ProducerStateManager(), 0, dense=False
    )
    if fault:
        raise TruncationError(
            f"{segment.path} cannot be truncated at byte {position}: at byte {fault.position}, "
            f"{fault.reason}. Truncate it at byte {fault.position}"
        )
    return end_offset
