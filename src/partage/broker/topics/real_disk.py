"""The log's interface to a real file system."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from partage.log.disk import Buffer
from partage.wire.records.decoder import uninitialized_buffer

_OPEN_FILES_MAX = 512  # or a quarter of the limit, if that is less
_IOV_MAX = 1024
_SYNC_THREADS = 6
_NO_FULL_SYNC = (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL)  # on network file systems
_NOT_CACHED = (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL)


class _OpenFile:
    """A file descriptor, and the number of calls that are using it."""

    __slots__ = ("fd", "is_dropped", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        self.is_dropped = False


class RealDisk:
    """A data directory; implements `partage.log.disk.Disk`, for use by several threads.

    Files have mode 0600 and directories 0700: group state contains client names and hosts. Up to
    512 descriptors are kept open; the least recently used is closed first.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        #: Absolute path of the directory.
        self.path = os.path.abspath(root)
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = soft if hard == resource.RLIM_INFINITY else hard
        is_limited = allowed != resource.RLIM_INFINITY
        self._open_max = min(_OPEN_FILES_MAX, allowed // 4) if is_limited else _OPEN_FILES_MAX
        self._syncers = ThreadPoolExecutor(_SYNC_THREADS - 1, "partage-sync")
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def space(self) -> tuple[int, int]:
        """Return the size of the volume in bytes, and how many of them this process can use."""
        volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def file_identity(self, path: str) -> str:
        """Return device and inode of a file. A copy of the file has other numbers.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        found = (self._root / path).stat()
        return f"{found.st_dev}:{found.st_ino}"

    def names(self, directory: str) -> list[str]:
        """Return the sorted entries of a directory."""
        try:
            return sorted(os.listdir(self._root / directory))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return os.stat(self._root / path).st_size

    def read(self, path: str, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``."""
        with self._opened(path, create=False) as fd:
            data = os.pread(fd, length, position)
            while 0 < len(data) < length:
                more = os.pread(fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data

    def read_cached(self, path: str, position: int, length: int) -> bytearray | None:
        """Return the bytes if all are in the page cache, otherwise None.

        It never waits for the device. On systems without `RWF_NOWAIT` it always returns None.
        """
        no_wait = getattr(os, "RWF_NOWAIT", None)  # Linux only
        if no_wait is None:
            return None
        buffer = uninitialized_buffer(length)  # returned only if it is completely filled
        try:
            with self._opened(path, create=False) as fd:
                got = os.preadv(fd, [buffer], position, no_wait)
        except OSError as error:
            if error.errno in _NOT_CACHED:
                return None
            raise
        return buffer if got == length else None

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        """Write the chunks one after the other at ``position``; create the file if necessary."""
        file = self._acquire(path, create=True)
        try:
            for start in range(0, len(chunks), _IOV_MAX):
                position = _write_all(file.fd, chunks[start : start + _IOV_MAX], position)
        finally:
            self._release(file)

    def sync(self, *paths: str) -> None:
        """Return once the files survive a power loss.

        Each fsync waits for the device; several run at the same time.
        """
        lanes = [paths[n::_SYNC_THREADS] for n in range(min(_SYNC_THREADS, len(paths)))]
        others = [self._syncers.submit(self._sync, lane) for lane in lanes[1:]]
        try:
            self._sync(lanes[0] if lanes else ())
        finally:
            wait(others)
        for other in others:
            other.result()

    def _sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            file = self._acquire(path, create=False)
            try:
                _sync_content(file.fd)
            finally:
                self._release(file)

    def truncate(self, path: str, length: int) -> None:
        """Truncate the file to ``length`` bytes."""
        with self._opened(path, create=False) as fd:
            os.ftruncate(fd, length)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory."""
        os.rename(self._root / old, self._root / new)
        # Only after the rename: a read in another thread could reopen the old file before it. Later
        # writes to this name would then go to the file that was replaced.
        self._drop(old)
        self._drop(new)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents."""
        target = self._root / path
        if target.is_dir():
            import shutil  # not at the start of a broker: with its imports it takes 2 ms

            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        self._drop(path)  # after the removal, for the same reason

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents."""
        (self._root / path).mkdir(mode=0o700, parents=True, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory survive a power loss."""
        fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync_all(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close all descriptors, and stop the sync threads."""
        self._syncers.shutdown()
        self._drop("")

    @contextmanager
    def _opened(self, path: str, *, create: bool) -> Iterator[int]:
        file = self._acquire(path, create=create)
        try:
            yield file.fd
        finally:
            self._release(file)

    def _acquire(self, path: str, *, create: bool) -> _OpenFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
                file = self._files[path] = _OpenFile(os.open(self._root / path, flags, 0o600))
                if len(self._files) > self._open_max:
                    oldest = self._remove_from_cache(next(iter(self._files)))
                    if not oldest.users:
                        os.close(oldest.fd)
            else:
                self._files.move_to_end(path)
            file.users += 1
            return file

    def _release(self, file: _OpenFile) -> None:
        with self._lock:
            file.users -= 1
            is_last = file.is_dropped and not file.users
        if is_last:
            os.close(file.fd)

    def _drop(self, path: str) -> None:
        """Remove a file, or all files of a directory, from the cache; running calls continue."""
        with self._lock:
            below = path + "/" if path else ""
            names = [n for n in self._files if n == path or n.startswith(below)]
            unused = [file for file in map(self._remove_from_cache, names) if not file.users]
        # outside the lock: closing the last descriptor of a removed file waits for the disk
        for file in unused:
            os.close(file.fd)

    def _remove_from_cache(self, path: str) -> _OpenFile:
        file = self._files.pop(path)
        file.is_dropped = True
        return file


def _sync_content(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        _sync_all(fd)


def _sync_all(fd: int) -> None:
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:  # macOS: fsync alone leaves the data in the device's cache
        try:
            fcntl.fcntl(fd, full_sync)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(fd)


def _write_all(fd: int, chunks: Sequence[Buffer], position: int) -> int:
    """Write all bytes, despite partial writes; return the position after them."""
    views = [memoryview(chunk) for chunk in chunks if len(chunk)]
    while views:
        written = os.pwritev(fd, views, position)
        position += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]
    return position
