"""The disk interface of the log. The broker provides the implementation.

Paths are relative to the data directory, with ``/`` between their parts. Every call is synchronous:
it is complete when it returns. The shell chooses the thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Disk(Protocol):
    """The file system operations that a log needs. Errors of the system are `OSError`."""

    def names(self, directory: str) -> list[str]:
        """Return the entries of a directory, sorted; empty if it does not exist."""

    def size(self, path: str) -> int:
        """Return the length of a file in bytes; raise `FileNotFoundError` if it does not exist."""

    def read(self, path: str, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only at the end of the file."""

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        """Write the chunks in order from ``position`` on; create the file if it does not exist."""

    def sync(self, *paths: str) -> None:
        """Return once all bytes written to the files survive a loss of power.

        Syncing several files at once may take no longer than syncing one. After an error the state
        of all of them is unknown.
        """

    def truncate(self, path: str, length: int) -> None:
        """Truncate the file to ``length`` bytes."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory; an existing file ``new`` is replaced atomically."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content. A missing path is no error."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. An existing one is no error."""

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory survive a loss of power."""
