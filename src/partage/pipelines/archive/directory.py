"""An archive on the disk.

    topic=flights/date=2013-01-01/....parquet     what readers read
    _manifest/00000000.json                       the entries
    _staging/RUN/...                              what a run is about to bring

An entry is made by linking a staged file that is whole and synced to the next number's name, which
fails if somebody else was first: so any number of runs may share an archive, and no lock is needed.
Its files, synced before, are moved to where they belong after that, and whoever opens the archive
makes up for moves that a kill left undone. Readers of the directory (Spark leaves out names that
begin with ``_``) therefore see no record twice at any time, and each once its move is done.

A run holds a lock on its own staging directory while it lives: what those of the dead have left is
cleared away. The lock protects nothing else.
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
    """A directory that holds something else, or cannot be used; the message says what."""


class StagingDirectory:
    """A directory below ``_staging`` that one run writes in, and the lock that says it lives.

    To be ended by `end`; if its process is killed instead, others clear it away.
    """

    def __init__(self, archive: Path) -> None:
        while True:
            self.path = archive / _STAGING / uuid.uuid4().hex
            try:
                self._lock = _make_locked_directory(self.path)
            except FileNotFoundError:  # somebody took it for what a dead run had left
                continue
            return

    def new_path(self, name: str) -> Path:
        """A name for what is written next; another one each time."""
        return self.path / f"{name}-{uuid.uuid4().hex[:8]}"

    def close(self, archive: ArchiveDirectory) -> None:
        """Take it away, unless files in it are archived and could not be moved (see `clear`)."""
        if archive.has_moved_all:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _make_locked_directory(path: Path) -> IO[str]:
    """Make a directory, under another name until it is locked; its lock."""
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
    """The entries of an archive, read and written; of one ``kind``, of any where that is None.

    Raises:
        ArchiveDirectoryError: the directory has other things in it, or entries of another kind, or cannot
            be made.
        ManifestError: its entries cannot be read, or contradict one another.
    """

    def __init__(self, path: Path, kind: str | None = ARCHIVE_KIND, *, create: bool = True) -> None:
        self.path = path
        self.kind = kind
        self.manifest = Manifest()
        self._to_move: list[ManifestEntry] = []
        self._may_have_unread_entry = (
            False  # an entry was made, perhaps, that has not been read yet
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
        """Whether the files of all entries that this run knows or made are where they belong."""
        return not self._to_move and not self._may_have_unread_entry

    def refresh(self) -> None:
        """Read the entries made since, by whomever, and end their moves if nobody did.

        Raises:
            ArchiveDirectoryError, ManifestError: as the directory itself.
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
        """Make the entry the next one, unless somebody else was first, which False says.

        From here on it counts, whatever happens. Its files must be synced.
        """
        whole = staging.new_path("entry")
        with whole.open("wb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        self._may_have_unread_entry = True  # whatever fails from here on, the entry may be there
        try:
            os.link(whole, entry_path(self.path, entry.number))
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        _sync(self.path / _MANIFEST)
        return True

    def _move_files(self) -> None:
        """Move files to where they belong; those that are there already stay."""
        while self._to_move:
            touched: set[Path] = set()
            for file in self._to_move[0].files:
                if self._move(file):
                    # The directories may be new, and their names have to last too.
                    touched |= {self.path / parent for parent in Path(file.path).parents}
            for directory in sorted(touched):
                _sync(directory)
            del self._to_move[0]

    def remove_stale_staging(self) -> None:
        """Take away what dead runs have staged. Entries are settled by then (see `refresh`)."""
        for left in _directories(self.path / _STAGING):
            try:
                lock = (left / _LOCK).open("r+")
            except OSError:  # being made, or taken away; or whoever did so was killed
                with suppress(OSError):  # it is not empty
                    left.rmdir()
                continue
            with lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                # An entry may have been made between the last look and the death of its run.
                self.refresh()
                shutil.rmtree(left, ignore_errors=True)

    def _move(self, file: ArchivedFile) -> bool:
        staged, path = self.path / file.staged, self.path / file.path
        if not staged.exists():
            return False  # moved already, and perhaps deleted since by whoever owns the archive
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.rename(path)
        except FileNotFoundError:
            return False  # somebody else moved it just now
        return True


def entry_path(archive: Path, number: int) -> Path:
    """Where an entry is, once it is made."""
    return archive / _MANIFEST / f"{number:08}.json"


def _directories(parent: Path) -> Iterator[Path]:
    if parent.is_dir():
        yield from sorted(path for path in parent.iterdir() if path.is_dir())


def _sync(directory: Path) -> None:
    """Make names in a directory as durable as the files they name."""
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
