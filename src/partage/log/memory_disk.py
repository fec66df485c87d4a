"""A disk in memory, for brokers without storage and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from partage.log.disk import Buffer

_Directory = dict[str, "bytearray | None"]  # None: a subdirectory, which has its own entry


class MemoryDisk:
    """A `Disk` whose files are byte arrays. The cost of I/O is the cost of copying the bytes.

    Everything is durable at once, until the process ends.
    """

    def __init__(self) -> None:
        self._directories: dict[str, _Directory] = {"": {}}

    def names(self, directory: str) -> list[str]:
        return sorted(self._directories.get(directory, ()))

    def size(self, path: str) -> int:
        return len(self._file(path))

    def read(self, path: str, position: int, length: int) -> bytes:
        with memoryview(self._file(path)) as view:
            return bytes(view[position : position + length])

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        file = self._file_or_new(path)
        if position > len(file):
            file.extend(bytes(position - len(file)))
        for chunk in chunks:
            if position == len(file):
                file += chunk
            else:
                file[position : position + len(chunk)] = chunk
            position += len(chunk)

    def sync(self, *paths: str) -> None:
        for path in paths:
            self._file(path)

    def truncate(self, path: str, length: int) -> None:
        file = self._file(path)
        if length < len(file):
            del file[length:]
        else:
            file.extend(bytes(length - len(file)))

    def rename(self, old: str, new: str) -> None:
        (source, old_name), (target, new_name) = self._find(old), self._find(new)
        if old_name not in source:
            raise FileNotFoundError(old)
        if old in self._directories:
            self._move_directories(old, new)
        target[new_name] = source.pop(old_name)

    def remove(self, path: str) -> None:
        if path in self._directories:
            for directory in self._below(path):
                del self._directories[directory]
        parent, name = _split(path)
        self._directories.get(parent, {}).pop(name, None)

    def make_directory(self, path: str) -> None:
        if path not in self._directories:
            parent, name = _split(path)
            self.make_directory(parent)
            self._directories[parent][name] = None
            self._directories[path] = {}

    def sync_directory(self, path: str) -> None:
        if path not in self._directories:
            raise FileNotFoundError(path)

    def _find(self, path: str) -> tuple[_Directory, str]:
        """Return the directory of a path, and the name in it."""
        parent, name = _split(path)
        if parent not in self._directories:
            raise FileNotFoundError(path)
        return self._directories[parent], name

    def _file(self, path: str) -> bytearray:
        directory, name = self._find(path)
        file = directory.get(name)
        if file is None:
            raise FileNotFoundError(path)
        return file

    def _file_or_new(self, path: str) -> bytearray:
        directory, name = self._find(path)
        file = directory.get(name)
        if file is None:
            if path in self._directories:
                raise IsADirectoryError(path)
            file = directory[name] = bytearray()
        return file

    def _below(self, path: str) -> list[str]:
        return [at for at in self._directories if at == path or at.startswith(path + "/")]

    def _move_directories(self, old: str, new: str) -> None:
        for directory in self._below(old):
            self._directories[new + directory[len(old) :]] = self._directories.pop(directory)


def _split(path: str) -> tuple[str, str]:
    """Return the parent directory of a path, which is relative, and the name in it."""
    parent, _, name = path.rpartition("/")
    return parent, name
