"""Putting compacted segments in the place of the old ones, so that a crash leaves the one or the
other: a small file says what is to be done, and once it is durable it will be done.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.damage import DamagedLog
from partage.log.disk import Disk
from partage.log.layout import PROGRESS, SWAP
from partage.log.performing import read_file, replace_file


class Round(msgspec.Struct, frozen=True, array_like=True):
    """A compaction that has been: up to which offset, and when (ms since the epoch)."""

    end_offset: int
    at_ms: int


class Progress(msgspec.Struct, frozen=True):
    """How far compaction has come: each key before ``cleaned_to`` stands there once at most.

    ``rounds`` tell how long ago, oldest first; not each one is kept.
    """

    cleaned_to: int = 0
    rounds: Sequence[Round] = ()


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done in a partition's directory; names, not paths."""

    renames: Sequence[tuple[str, str]]
    removals: Sequence[str]
    progress: Progress


def begin_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """From here on the swap happens, whatever else does; the new files must be durable."""
    replace_file(disk, f"{directory}/{SWAP}", msgspec.json.encode(swap))


def rename_swapped(disk: Disk, directory: str, swap: Swap) -> None:
    """Put the new files in place; those that are there already are left alone."""
    names = set(disk.names(directory))
    for old, new in swap.renames:
        if old in names:
            disk.rename(f"{directory}/{old}", f"{directory}/{new}")


def end_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """Remove what was replaced, and then the file that says so."""
    for name in swap.removals:
        disk.remove(f"{directory}/{name}")
    replace_file(disk, f"{directory}/{PROGRESS}", msgspec.json.encode(swap.progress))
    disk.remove(f"{directory}/{SWAP}")
    disk.sync_directory(directory)


def resume_swap(disk: Disk, directory: str) -> None:
    """Do what a swap has left to do that a crash interrupted, or a failure."""
    path = f"{directory}/{SWAP}"
    content = read_file(disk, path)
    if content is None:
        return
    try:
        swap = msgspec.json.decode(content, type=Swap)
    except msgspec.DecodeError as error:
        raise DamagedLog(path, 0, f"it cannot be read: {error}") from None
    rename_swapped(disk, directory, swap)
    end_swap(disk, directory, swap)


def read_progress(disk: Disk, directory: str) -> Progress:
    """How far compaction has come; none if the file is missing or cannot be read."""
    content = read_file(disk, f"{directory}/{PROGRESS}")
    try:
        return msgspec.json.decode(content, type=Progress) if content else Progress()
    except msgspec.DecodeError:
        return Progress()  # costs only that all is compacted again, and tombstones stay longer
