"""Giving up the end of a damaged log: what ``partage log cut PATH --at POSITION`` does."""

from __future__ import annotations

import msgspec

from partage.log.disk import Disk
from partage.log.layout import LOG, PROGRESS, name_of, offset_of, partition_directory
from partage.log.leftovers import finish_what_was_begun, segment_bases
from partage.log.markers import Marker, Markers
from partage.log.outcomes import Step
from partage.log.performing import perform_step, replace_file
from partage.log.producers import Producers
from partage.log.scanning import scan_segment
from partage.log.segment import ActiveSegment
from partage.log.swapping import Progress, read_progress
from partage.log.topics import Topics
from partage.log.torn import Cut, cut_tail, set_aside

_REASON = "cut by hand"


class CannotCut(ValueError):
    """The file or the position is not one at which a log can be cut; the message says why."""


def cut_log(disk: Disk, path: str, position: int) -> list[Cut]:
    """Let the log of a partition end at byte ``position`` of one of its segment files.

    ``path`` is relative to the data directory, which no broker may be using. What is cut off is
    kept beside the log. Can be repeated after a crash.

    Raises:
        CannotCut: no such segment, or no batch begins at that position, or those before it are
            damaged themselves.
        DamagedFile: the list of topics cannot be read.
    """
    directory, name = path.rpartition("/")[0], name_of(path)
    base_offset = offset_of(name, LOG)
    if base_offset is None or name not in disk.names(directory):
        raise CannotCut(f"there is no segment file {path}")
    partitions = _partitions(Topics.load(disk))
    if directory not in partitions:
        raise CannotCut(f"no topic in the catalogue has its log in {directory}")
    finish_what_was_begun(disk, directory)
    end_offset = _end_offset(disk, directory, base_offset, position)
    later = [base for base in segment_bases(disk, directory) if base > base_offset]
    cuts = [set_aside(disk, directory, base, _REASON) for base in reversed(later)]
    cuts.append(cut_tail(disk, path, position, _REASON))
    # Offsets from the end on will be used again, and are not compacted then; before it are gaps.
    cleaned_to = min(read_progress(disk, directory).cleaned_to, end_offset)
    replace_file(disk, f"{directory}/{PROGRESS}", msgspec.json.encode(Progress(cleaned_to)))
    key = partitions[directory]
    markers = Markers.load(disk, partitions.values())
    found = markers.found(*key) or Marker()
    marker = Marker(
        base_offset=base_offset,
        position=position,
        end_offset=end_offset,
        log_start_offset=min(found.log_start_offset, end_offset),
    )
    perform_step(disk, Step(marker=markers.slot(*key).write(marker)))
    return cuts


def _partitions(topics: Topics) -> dict[str, tuple[bytes, int]]:
    """Topic id and partition by directory."""
    return {
        partition_directory(topic.name, partition): (topic.topic_id, partition)
        for topic in topics
        for partition in range(topic.partition_count)
    }


def _end_offset(disk: Disk, directory: str, base_offset: int, position: int) -> int:
    """The offset that begins at a position; everything before it has to be sound."""
    segment = ActiveSegment(directory, base_offset, 0, 0)
    if not 0 <= position <= disk.size(segment.path):
        raise CannotCut(f"{segment.path} has {disk.size(segment.path)} bytes, not {position}")
    end_offset, fault = scan_segment(disk, segment, position, Producers(), 0, dense=False)
    if fault:
        raise CannotCut(
            f"{segment.path} cannot be cut at {position}: at byte {fault.position}, "
            f"{fault.reason}; that is where to cut"
        )
    return end_offset
