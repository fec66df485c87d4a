"""What a partition's directory may hold besides its log, and how it goes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from partage.log.disk import Disk
from partage.log.layout import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    TEMPORARY,
    TIME_INDEX,
    files_of_segment,
    offset_of,
)
from partage.log.swapping import resume_swap


def finish_what_was_begun(disk: Disk, directory: str) -> None:
    """End a swap that was decided on, and remove the traces of work that was not."""
    resume_swap(disk, directory)
    for name in disk.names(directory):
        if name.endswith((CLEANED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")


def segment_bases(disk: Disk, directory: str) -> list[int]:
    """The base offsets of the segments in a directory, in order."""
    offsets = (offset_of(name, LOG) for name in disk.names(directory))
    return [offset for offset in offsets if offset is not None]


def drop_below(
    disk: Disk, directory: str, bases: Sequence[int], log_start_offset: int
) -> list[int]:
    """Remove the segments that end at or below the log's start, but not the last one."""
    kept = len(bases) - 1
    while kept and bases[kept] > log_start_offset:
        kept -= 1
    for base_offset in bases[:kept]:
        for path in files_of_segment(directory, base_offset):
            disk.remove(path)
    return list(bases[kept:])


def drop_strays(disk: Disk, directory: str, kept_offsets: Collection[int]) -> None:
    """Remove index files and snapshots that belong to none of these offsets."""
    for name in disk.names(directory):
        for suffix in (INDEX, TIME_INDEX, SNAPSHOT):
            offset = offset_of(name, suffix)
            if offset is not None and offset not in kept_offsets:
                disk.remove(f"{directory}/{name}")
