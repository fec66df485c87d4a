"""What a partition's directory may hold besides its log, and how it goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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


def first_kept(bases: Sequence[int], log_start_offset: int) -> int:
    """Which segment is the first that doesn't end at or below the log's start; the last stays."""
    kept = len(bases) - 1
    while kept and bases[kept] > log_start_offset:
        kept -= 1
    return kept


def drop_segments(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """Remove all files of segments."""
    for base_offset in bases:
        for path in files_of_segment(directory, base_offset):
            disk.remove(path)


def drop_strays(disk: Disk, directory: str, bases: Collection[int], end_offset: int) -> None:
    """Remove index files of no segment, and snapshots of neither a segment nor the log's end."""
    kept = {INDEX: {*bases}, TIME_INDEX: {*bases}, SNAPSHOT: {*bases, end_offset}}
    for name in disk.names(directory):
        for suffix, offsets in kept.items():
            offset = offset_of(name, suffix)
            if offset is not None and offset not in offsets:
                disk.remove(f"{directory}/{name}")
