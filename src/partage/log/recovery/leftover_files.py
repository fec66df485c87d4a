"""Files in a partition's directory that are not part of its log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from partage.log.compaction.segment_swap import resume_swap
from partage.log.disk import Disk
from partage.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_from_name,
    segment_files,
)


def finish_interrupted_work(disk: Disk, directory: str) -> None:
    """Finish a committed swap, and remove temporary files of interrupted work."""
    resume_swap(disk, directory)
    for name in disk.names(directory):
        if name.endswith((CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{directory}/{name}")


def segment_bases(disk: Disk, directory: str) -> list[int]:
    """Return the base offsets of the segments in a directory, in order."""
    return file_offsets(disk.names(directory), LOG_SUFFIX)


def file_offsets(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets in the names of files with this suffix."""
    offsets = (offset_from_name(name, suffix) for name in names)
    return [offset for offset in offsets if offset is not None]


def first_retained_segment(bases: Sequence[int], log_start_offset: int) -> int:
    """Return the index of the first segment to keep.

    It is the first one that ends above the log start offset, or the last segment.
    """
    kept = len(bases) - 1
    while kept and bases[kept] > log_start_offset:
        kept -= 1
    return kept


def remove_segments(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """Remove all files of the segments with these base offsets."""
    for base_offset in bases:
        for path in segment_files(directory, base_offset):
            disk.remove(path)


def remove_orphan_files(
    disk: Disk, directory: str, bases: Collection[int], end_offset: int
) -> None:
    """Remove index files without a segment, and snapshots other than at a segment or log end."""
    kept = {
        INDEX_SUFFIX: {*bases},
        TIME_INDEX_SUFFIX: {*bases},
        TXN_INDEX_SUFFIX: {*bases},
        SNAPSHOT_SUFFIX: {*bases, end_offset},
    }
    for name in disk.names(directory):
        for suffix, offsets in kept.items():
            offset = offset_from_name(name, suffix)
            if offset is not None and offset not in offsets:
                disk.remove(f"{directory}/{name}")
