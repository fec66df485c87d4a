"""A minimal `Disk` on a real directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from partage.log.disk import Buffer


class DirectoryDisk:
    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self, directory: str) -> list[str]:
        path = self.root / directory
        return sorted(os.listdir(path)) if path.is_dir() else []

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def read(self, path: str, position: int, length: int) -> bytes:
        with open(self.root / path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, position)

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        fd = os.open(self.root / path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for chunk in chunks:
                position += os.pwrite(fd, chunk, position)
        finally:
            os.close(fd)

    def sync(self, *paths: str) -> None:
        for path in paths:
            self._sync(path)

    def truncate(self, path: str, length: int) -> None:
        os.truncate(self.root / path, length)

    def rename(self, old: str, new: str) -> None:
        os.rename(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        if (self.root / path).is_dir():
            shutil.rmtree(self.root / path)
        else:
            (self.root / path).unlink(missing_ok=True)

    def make_directory(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        self._sync(path)

    def _sync(self, path: str) -> None:
        fd = os.open(self.root / path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
