"""Doing what the log asks for: the one place that knows which syncs make a group durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from posixpath import dirname

from partage.log.disk import Buffer, Disk
from partage.log.outcomes import Step, Write


def perform(disk: Disk, writes: Sequence[Write], *, sync: bool = True) -> None:
    """Do the writes of a group in order; with ``sync``, return once they survive a loss of power.

    Neighbouring writes to one file become one call. A write at position 0 may have made its
    file, so the directory is synced too. Raises `OSError`: the logs concerned are then unusable
    and have to be opened again.
    """
    for path, position, chunks in _joined(writes):
        disk.write(path, position, chunks)
    if sync:
        disk.sync(*dict.fromkeys(write.path for write in writes))
        sync_directories(disk, (write.path for write in writes if write.position == 0))


def perform_step(disk: Disk, *steps: Step) -> None:
    """Do the writes of steps and then their markers, durably; the removals are the caller's.

    Many steps together take far fewer syncs. Raises as `perform`.
    """
    perform(disk, [write for step in steps for write in step.writes])
    markers = [step.marker for step in steps]
    perform(disk, markers, sync=False)
    disk.sync(*dict.fromkeys(marker.path for marker in markers))


def sync_directories(disk: Disk, paths: Iterable[str]) -> None:
    """Make the names of these files durable, each directory once."""
    for directory in dict.fromkeys(map(dirname, paths)):
        disk.sync_directory(directory)


def replace_file(disk: Disk, path: str, content: Buffer) -> None:
    """Put a whole new content in a file: after a crash it is the old one or the new one."""
    temporary = path + ".tmp"
    disk.remove(temporary)
    disk.write(temporary, 0, [content])
    disk.sync(temporary)
    disk.rename(temporary, path)
    disk.sync_directory(dirname(path))


def read_file(disk: Disk, path: str) -> bytes | None:
    """A file's whole content; `None` if there is no such file."""
    try:
        return disk.read(path, 0, disk.size(path))
    except FileNotFoundError:
        return None


def _joined(writes: Sequence[Write]) -> Iterator[tuple[str, int, list[Buffer]]]:
    """The writes with those that go on where the one before ended taken together."""
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
