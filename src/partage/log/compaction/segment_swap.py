"""Atomic replacement of segments by compacted ones.

A small file lists the renames and removals. Once it is durable, the swap is committed: a start
after a crash completes it. Before that, a crash leaves the old segments unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.io import read_file, replace_file
from partage.log.layout import PROGRESS_FILE, SWAP_FILE


class CompactionRun(msgspec.Struct, frozen=True, array_like=True):
    """A completed compaction: its end offset, and its time in ms since the epoch."""

    end_offset: int
    at_ms: int


class CompactionProgress(msgspec.Struct, frozen=True):
    """The extent of past compactions. Each key occurs at most once before ``cleaned_to``.

    ``rounds`` are past compactions, oldest first. Not every one is kept.
    """

    cleaned_to: int = 0
    rounds: Sequence[CompactionRun] = ()


class SegmentSwap(msgspec.Struct, frozen=True, kw_only=True):
    """The renames and removals of a swap in a partition's directory, as names, not paths."""

    renames: Sequence[tuple[str, str]]
    removals: Sequence[str]
    progress: CompactionProgress


def begin_swap(disk: Disk, directory: str, swap: SegmentSwap) -> None:
    """Commit the swap: a start after a crash completes it. The new files must be durable."""
    replace_file(disk, f"{directory}/{SWAP_FILE}", msgspec.json.encode(swap))


def rename_swapped_files(disk: Disk, directory: str, swap: SegmentSwap) -> None:
    """Rename the new files into place; skip those that were renamed before."""
    names = set(disk.names(directory))
    for old, new in swap.renames:
        if old in names:
            disk.rename(f"{directory}/{old}", f"{directory}/{new}")


def finish_swap(disk: Disk, directory: str, swap: SegmentSwap) -> None:
    """Remove the replaced files, and then the swap file."""
    for name in swap.removals:
        disk.remove(f"{directory}/{name}")
    replace_file(disk, f"{directory}/{PROGRESS_FILE}", msgspec.json.encode(swap.progress))
    disk.remove(f"{directory}/{SWAP_FILE}")
    disk.sync_directory(directory)


def resume_swap(disk: Disk, directory: str) -> None:
    """Complete a swap that a crash or an error interrupted."""
    path = f"{directory}/{SWAP_FILE}"
    content = read_file(disk, path)
    if content is None:
        return
    try:
        swap = msgspec.json.decode(content, type=SegmentSwap)
    except msgspec.DecodeError as error:
        raise DamagedLogError(path, 0, f"the file cannot be read: {error}") from None
    rename_swapped_files(disk, directory, swap)
    finish_swap(disk, directory, swap)


def read_progress(disk: Disk, directory: str) -> CompactionProgress:
    """Return the progress of compaction; the default if the file is missing or unreadable."""
    content = read_file(disk, f"{directory}/{PROGRESS_FILE}")
    try:
        return (
            msgspec.json.decode(content, type=CompactionProgress)
            if content
            else CompactionProgress()
        )
    except msgspec.DecodeError:
        # Cost: everything is compacted again, and tombstones stay longer.
        return CompactionProgress()
