"""The disk that the log is written on, as an interface: the broker brings the real one.

Paths are relative to the data directory, with ``/`` between their parts. Every call is
synchronous and does what it says before it returns; which thread calls it is the shell's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Disk(Protocol):
    """What a log asks of a file system; errors are `OSError`, as the system raises them."""

    def names(self, directory: str) -> list[str]:
        """The entries of a directory, sorted; empty where there is none."""

    def size(self, path: str) -> int:
        """The length of a file in bytes; raises `FileNotFoundError`."""

    def read(self, path: str, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position``; fewer only at the end of the file."""

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        """Write the chunks one after the other at ``position``; makes the file if need be."""

    def sync(self, *paths: str) -> None:
        """Return once what was written to the files survives a loss of power.

        Several at a time may take no longer than one. After an error of one nothing is known of
        the others.
        """

    def truncate(self, path: str, length: int) -> None:
        """Cut the file to ``length`` bytes."""

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory; an existing file ``new`` is replaced at once or not at all."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; nothing there is no error."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; an existing one is no error."""

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory survive a loss of power."""
