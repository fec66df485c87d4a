"""Truncation of unacknowledged bytes, which are kept in a file beside the log for inspection."""

from __future__ import annotations

from itertools import chain, count
from posixpath import dirname

import msgspec

from partage.log.disk import Disk
from partage.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    segment_file,
)

_CHUNK_BYTES = 1 << 20


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """A truncation of ``length`` bytes at ``position``; ``kept_in`` is None if all were zero."""

    path: str
    position: int
    length: int
    reason: str
    kept_in: str | None

    def __str__(self) -> str:
        kept = f"kept in {self.kept_in}" if self.kept_in else "all of them zero"
        return (
            f"{self.path}: {self.reason}: removed {self.length} bytes at byte {self.position}, "
            f"{kept}"
        )


def truncate_tail(disk: Disk, path: str, position: int, reason: str) -> Truncation:
    """Truncate a file at ``position``, durably, and keep the removed bytes unless all are zero."""
    length = disk.size(path) - position
    kept_in = None
    if _has_content(disk, path, position):
        kept_in = _free_name(disk, path, position)
        _copy(disk, path, position, kept_in)
    disk.truncate(path, position)
    disk.sync(path)
    return Truncation(path=path, position=position, length=length, reason=reason, kept_in=kept_in)


def set_aside_segment(disk: Disk, directory: str, base_offset: int, reason: str) -> Truncation:
    """Remove a whole segment from a log, durably, and keep its bytes unless all are zero."""
    path = segment_file(directory, base_offset, LOG_SUFFIX)
    length = disk.size(path)
    kept_in = _free_name(disk, path, 0) if _has_content(disk, path, 0) else None
    if kept_in:
        disk.rename(path, kept_in)
    else:
        disk.remove(path)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
        disk.remove(segment_file(directory, base_offset, suffix))
    disk.sync_directory(directory)
    return Truncation(path=path, position=0, length=length, reason=reason, kept_in=kept_in)


def _free_name(disk: Disk, path: str, position: int) -> str:
    """Return an unused file name for the removed bytes, next to earlier ones."""
    kept_in, names = f"{path}.torn-{position}", set(disk.names(dirname(path)))
    others = (f"{kept_in}-{number}" for number in count(2))
    return next(name for name in chain([kept_in], others) if base_name(name) not in names)


def _has_content(disk: Disk, path: str, position: int) -> bool:
    while chunk := disk.read(path, position, _CHUNK_BYTES):
        if chunk.count(0) < len(chunk):
            return True
        position += len(chunk)
    return False


def _copy(disk: Disk, path: str, position: int, target: str) -> None:
    at = 0
    while chunk := disk.read(path, position + at, _CHUNK_BYTES):
        disk.write(target, at, [chunk])
        at += len(chunk)
    disk.sync(target)
    disk.sync_directory(dirname(target))
