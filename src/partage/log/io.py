"""Durable I/O for the log. Only this module decides which files and directories to sync."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from posixpath import dirname

from partage.log.disk import Buffer, Disk
from partage.log.results import DurableStep, Write


def perform_writes(disk: Disk, writes: Sequence[Write], *, sync: bool = True) -> None:
    """Perform writes in order; with ``sync``, return once they survive a loss of power.

    Joins contiguous writes to one file into one call. A write at position 0 may have created its
    file, so its directory is synced too.

    Raises:
        OSError: The affected logs are unusable. Open them again.
    """
    for path, position, chunks in _joined(writes):
        disk.write(path, position, chunks)
    if sync:
        disk.sync(*dict.fromkeys(write.path for write in writes))
        sync_directories(disk, (write.path for write in writes if write.position == 0))


def perform_step(disk: Disk, *steps: DurableStep) -> None:
    """Perform the writes of steps and then their checkpoints, durably. The caller removes files.

    Performing many steps together takes far fewer syncs. Raises as `perform_writes`.
    """
    perform_writes(disk, [write for step in steps for write in step.writes])
    markers = [step.checkpoint for step in steps]
    perform_writes(disk, markers, sync=False)
    disk.sync(*dict.fromkeys(marker.path for marker in markers))


def sync_directories(disk: Disk, paths: Iterable[str]) -> None:
    """Make the names of these files durable; sync each directory once."""
    for directory in dict.fromkeys(map(dirname, paths)):
        disk.sync_directory(directory)


def replace_file(disk: Disk, path: str, content: Buffer) -> None:
    """Replace the content of a file atomically: after a crash it has the old content or the new."""
    temporary = path + ".tmp"
    disk.remove(temporary)
    disk.write(temporary, 0, [content])
    disk.sync(temporary)
    disk.rename(temporary, path)
    disk.sync_directory(dirname(path))


def read_file(disk: Disk, path: str) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    try:
        return disk.read(path, 0, disk.size(path))
    except FileNotFoundError:
        return None


def _joined(writes: Sequence[Write]) -> Iterator[tuple[str, int, list[Buffer]]]:
    """Join writes that continue where the previous one ended."""
    path, start, end, chunks = "", 0, -1, list[Buffer]()
    for write in writes:
        if write.path != path or write.position != end:
            if end >= 0:
                yield path, start, chunks
            path, start, end, chunks = write.path, write.position, write.position, []
        chunks.extend(write.chunks)
        end += write.size
    if end >= 0:
        yield path, start, chunks
