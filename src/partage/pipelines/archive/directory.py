"""The directory of an archive.

    topic=flights/date=2013-01-01/....parquet     files for readers
    _manifest/00000000.json                       manifest entries
    _staging/RUN/...                              files that a run is going to add

To publish an entry, a run links a complete and synced file to the name of the next entry number.
The link fails if another run has published that number. So several runs can share an archive
without a lock. The run then moves the entry's files, which are already synced, to their final
paths. If the run is killed before, the next run that opens the archive moves them. Readers of the
directory (Spark ignores names that begin with ``_``) therefore never see a record twice, and see it
once its file is moved.

A run holds a lock on its staging directory while it lives. The staging directory of a dead run is
removed. The lock has no other purpose.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from partage.pipelines.archive.manifest import (
    ARCHIVE_KIND,
    ArchivedFile,
    Manifest,
    ManifestEntry,
    ManifestError,
)

_MANIFEST: Final = "_manifest"
_STAGING: Final = "_staging"
_LOCK: Final = "lock"


class ArchiveDirectoryError(Exception):
    """The directory is not an archive, or is unusable; the message has the reason."""


class StagingDirectory:
    """A directory below ``_staging`` for one run, with the lock that proves that the run lives.

    Call `close` at the end. If the process is killed, another run removes the directory.
    """

    def __init__(self, archive: Path) -> None:
        while True:
            self.path = archive / _STAGING / uuid.uuid4().hex
            try:
                self._lock = _make_locked_directory(self.path)
            except FileNotFoundError:  # another run removed it as the directory of a dead run
                continue
            return

    def new_path(self, name: str) -> Path:
        """Return a new unique path below this directory."""
        return self.path / f"{name}-{uuid.uuid4().hex[:8]}"

    def close(self, archive: ArchiveDirectory) -> None:
        """Remove the directory, unless it has archived files that could not be moved yet."""
        if archive.has_moved_all:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _make_locked_directory(path: Path) -> IO[str]:
    """Create a directory and lock it before it gets its final name. Return the lock."""
    making = path.with_name(f".{path.name}")
    making.mkdir(parents=True)
    lock = (making / _LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        making.rename(path)
    except BaseException:
        lock.close()
        raise
    return lock


class ArchiveDirectory:
    """The manifest entries of an archive on disk.

    Args:
        path: the archive's directory.
        kind: the kind of entries to accept; None for any kind.
        create: True to create a missing archive.

    Raises:
        ArchiveDirectoryError: if the directory has other content or entries of another kind, or
            cannot be created.
        ManifestError: if an entry is unreadable or contradicts another one.
    """

    def __init__(self, path: Path, kind: str | None = ARCHIVE_KIND, *, create: bool = True) -> None:
        self.path = path
        self.kind = kind
        self.manifest = Manifest()
        self._to_move: list[ManifestEntry] = []
        self._may_have_unread_entry = (
            False  # True if this run may have published an entry that it has not read yet
        )
        entries = path / _MANIFEST
        if not entries.is_dir():
            if path.is_dir() and any(path.iterdir()):
                raise ArchiveDirectoryError(f"{path} is not empty, and it is not an archive")
            if not create:
                raise ArchiveDirectoryError(f"there is no archive in {path}")
            try:
                entries.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArchiveDirectoryError(f"{path} cannot be used: {error.strerror}") from None
            _sync(path)
        self.refresh()

    @property
    def has_moved_all(self) -> bool:
        """True if the files of all entries known to this run, or published by it, are moved."""
        return not self._to_move and not self._may_have_unread_entry

    def refresh(self) -> None:
        """Read new entries of all runs, and move files that are not at their final paths yet.

        Raises:
            ArchiveDirectoryError, ManifestError: as the constructor.
        """
        while True:
            self._move_files()
            name = entry_path(self.path, self.manifest.next_number)
            try:
                content = name.read_bytes()
            except FileNotFoundError:
                self._may_have_unread_entry = False
                return
            try:
                entry = msgspec.json.decode(content, type=ManifestEntry)
            except msgspec.MsgspecError as error:
                raise ManifestError(f"{name} cannot be read: {error}") from None
            if self.kind is not None and entry.kind != self.kind:
                raise ArchiveDirectoryError(
                    f"{self.path} was written by another pipeline or with other options "
                    f"({entry.kind}; this run: {self.kind}); use another --output"
                )
            try:
                self.manifest.apply(entry)
            except ManifestError as error:
                raise ManifestError(f"{name}: {error}") from None
            self._to_move.append(entry)

    def publish(self, entry: ManifestEntry, staging: StagingDirectory) -> bool:
        """Publish the entry as the next one. Return False if another run has published that number.

        The entry is valid from here on, even if this run fails. Its files must be synced.
        """
        whole = staging.new_path("entry")
        with whole.open("wb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        self._may_have_unread_entry = True  # The entry may exist even if a later step fails.
        try:
            os.link(whole, entry_path(self.path, entry.number))
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        _sync(self.path / _MANIFEST)
        return True

    def _move_files(self) -> None:
        """Move files to their final paths; ignore files that are already there."""
        while self._to_move:
            touched: set[Path] = set()
            for file in self._to_move[0].files:
                if self._move(file):
                    # The directories may be new, so their names must be synced too.
                    touched |= {self.path / parent for parent in Path(file.path).parents}
            for directory in sorted(touched):
                _sync(directory)
            del self._to_move[0]

    def remove_stale_staging(self) -> None:
        """Remove the staging directories of dead runs. Entries are moved first (see `refresh`)."""
        for left in _directories(self.path / _STAGING):
            try:
                lock = (left / _LOCK).open("r+")
            except OSError:  # being created or removed, or its run was killed while doing so
                with suppress(OSError):  # not empty
                    left.rmdir()
                continue
            with lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                # A run may have published an entry after our last refresh, and died.
                self.refresh()
                shutil.rmtree(left, ignore_errors=True)

    def _move(self, file: ArchivedFile) -> bool:
        staged, path = self.path / file.staged, self.path / file.path
        if not staged.exists():
            return False  # already moved, and perhaps deleted by the archive's owner
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.rename(path)
        except FileNotFoundError:
            return False  # another run has just moved it
        return True


def entry_path(archive: Path, number: int) -> Path:
    """Return the path of an entry."""
    return archive / _MANIFEST / f"{number:08}.json"


def _directories(parent: Path) -> Iterator[Path]:
    if parent.is_dir():
        yield from sorted(path for path in parent.iterdir() if path.is_dir())


def _sync(directory: Path) -> None:
    """Sync a directory, so that its file names are durable."""
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
