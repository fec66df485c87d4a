"""A simulated disk that can lose power: any part of the unsynced data survives.

Writes tear at sectors of 512 bytes and survive in any combination, including the file length.
Changes of names survive up to some point, for each directory separately. `CrashDisk.crash` leaves
the disk in the state that the next start finds.

Further faults:

- ``crash_after``: power fails after N more operations.
- ``failing_sync_path``: the next sync of this file fails.
- ``io_errors``: operations of a kind fail until the entry is removed.
- `CrashDisk.damage`: a bit flips.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Collection, Sequence
from posixpath import basename, dirname
from random import Random
from typing import Final, NamedTuple

from partage.log.disk import Buffer

SECTOR = 512
_FLIPPED_BIT: Final = 0x10  # the bit that flips
#: Names of disk faults and their consequences.
POWER_FAILURE: Final = "power_fails_in_a_write"
WRITE_LOST: Final = "a_write_is_lost"
WRITE_TORN: Final = "a_write_is_torn"
IO_ERRORS: Final = {
    ("write", errno.EIO): "writes_fail",
    ("write", errno.ENOSPC): "disk_is_full",
    ("sync", errno.EIO): "syncs_fail",
    ("read", errno.EIO): "reads_fail",
}


class PowerLossError(Exception):
    """Raised when the power fails during a disk operation."""


class Content:
    """A copy of a file's bytes, and the positions of its flipped bits."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.flipped: set[int] = set()

    def put(self, position: int, data: bytes, flipped: Collection[int] = ()) -> None:
        """Write bytes, of which those at the positions ``flipped`` have a flipped bit."""
        end = position + len(data)
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self.flipped = {at for at in self.flipped if not position <= at < end}.union(flipped)

    def undamaged(self, known: Collection[int]) -> bytes:
        """Return the bytes as they were written, except for the flipped bits at ``known``."""
        data = bytearray(self.data)
        for at in self.flipped.difference(known):
            data[at] ^= _FLIPPED_BIT
        return bytes(data)

    def cut(self, length: int) -> None:
        del self.data[length:]
        self.data.extend(bytes(length - len(self.data)))
        self.flipped = {at for at in self.flipped if at < length}

    def flip(self, position: int) -> None:
        if position < len(self.data):
            self.data[position] ^= _FLIPPED_BIT
            self.flipped ^= {position}


class Change(NamedTuple):
    """An unsynced write, or a truncation (data is None)."""

    position: int
    data: bytes | None
    flipped: frozenset[int] = frozenset()  # positions in the file

    def flip(self, position: int) -> Change:
        at = position - self.position
        if self.data is None or not 0 <= at < len(self.data):
            return self
        data = self.data[:at] + bytes([self.data[at] ^ _FLIPPED_BIT]) + self.data[at + 1 :]
        return Change(self.position, data, self.flipped ^ {position})


class File:
    """A file: its current content, its synced content, and the changes in between."""

    def __init__(self) -> None:
        self.current = Content()  # as seen by the running process
        self.synced = Content()
        self.unsynced: list[Change] = []

    def write(self, position: int, data: bytes) -> None:
        flipped = self._flipped_in_rewrite(position, data)
        self.unsynced.append(Change(position, data, flipped))
        self.current.put(position, data, flipped)

    def truncate(self, length: int) -> None:
        self.unsynced.append(Change(length, None))
        self.current.cut(length)

    def sync(self) -> None:
        """Make all changes durable."""
        for position, data, flipped in self.unsynced:
            if data is None:
                self.synced.cut(position)
            else:
                self.synced.put(position, data, flipped)
        self.unsynced = []

    def drop_unsynced(self) -> None:
        """Drop unsynced writes, as Linux does after a failed fsync: it marks the pages clean.

        Truncations are in the file system's journal and become durable with the next sync.
        """
        self.unsynced = [change for change in self.unsynced if change.data is None]

    def flip_bit(self, position: int) -> None:
        """Flip a bit of one byte in all copies of it."""
        for content in (self.current, self.synced):
            content.flip(position)
        self.unsynced = [change.flip(position) for change in self.unsynced]

    def is_damaged(self, position: int) -> bool:
        """Return whether any copy of a byte has a flipped bit."""
        parts: list[Content | Change] = [self.current, self.synced, *self.unsynced]
        return any(position in part.flipped for part in parts)

    def repair(self, position: int) -> None:
        """Flip the bit back in each copy in which it is flipped."""
        for content in (self.current, self.synced):
            if position in content.flipped:
                content.flip(position)
        self.unsynced = [
            change.flip(position) if position in change.flipped else change
            for change in self.unsynced
        ]

    def crash(self, rng: Random, struck: Callable[[str], None]) -> None:
        survives = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        content, length = self.synced, len(self.current.data)
        for position, data, flipped in self.unsynced:
            if data is None:
                if rng.random() < survives:
                    content.cut(position)
                continue
            pieces = _sectors(position, data)
            survivors = [piece for piece in pieces if rng.random() < survives]
            for start, piece in survivors:
                end = start + len(piece)
                content.put(start, piece, [at for at in flipped if start <= at < end])
            if len(survivors) < len(pieces):
                struck(WRITE_TORN if survivors else WRITE_LOST)
        if len(content.data) < length and rng.random() < survives:
            content.cut(length)  # the new length without the bytes
        self.current, self.synced, self.unsynced = copy.deepcopy(content), content, []

    def _flipped_in_rewrite(self, position: int, data: bytes) -> frozenset[int]:
        """Return the flipped bits that a write contains because it repeats the current bytes."""
        end = position + len(data)
        flipped = frozenset(at for at in self.current.flipped if position <= at < end)
        return flipped if self.current.data[position:end] == data else frozenset()


class Directory:
    """A directory: its entries, and their state after each change since the last sync."""

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.unsynced_states: list[dict[str, File | Directory]] = [{}]  # states since the last sync

    def record_change(self) -> None:
        self.unsynced_states.append(dict(self.entries))

    def sync(self) -> None:
        self.unsynced_states = [dict(self.entries)]

    def crash(self, rng: Random, struck: Callable[[str], None]) -> None:
        self.entries = dict(rng.choice(self.unsynced_states))
        self.sync()
        for entry in self.entries.values():
            entry.crash(rng, struck)


class CrashDisk:
    """An in-memory `partage.log.disk.Disk` with disk faults.

    ``on_fault`` is called with the name of each fault when it takes effect.
    """

    def __init__(self) -> None:
        self.on_fault: Callable[[str], None] = _ignore_fault
        self.root = Directory()
        self.operations = 0
        self.crash_after: int | None = None
        self.has_lost_power = False  # until `crash`
        self.failing_sync_path: str | None = None  # the file whose next sync fails
        self.io_errors: dict[str, int] = {}  # errno by operation: write, sync, read

    def copy(self) -> CrashDisk:
        """Return a copy of the disk with its planned faults, without `on_fault`."""
        other = copy.copy(self)
        other.on_fault = _ignore_fault
        other.root = copy.deepcopy(self.root)
        other.io_errors = dict(self.io_errors)
        return other

    def crash(self, rng: Random) -> None:
        """Lose power: keep only the data that survives."""
        self.root.crash(rng, self.on_fault)
        self.crash_after = None
        self.has_lost_power = False

    def names(self, directory: str) -> list[str]:
        found = self._find(directory)
        return sorted(found.entries) if isinstance(found, Directory) else []

    def size(self, path: str) -> int:
        return len(self._file(path).current.data)

    def read(self, path: str, position: int, length: int) -> bytes:
        self._raise_io_error("read")
        return bytes(self._file(path).current.data[position : position + length])

    def written(self, path: str, flipped: Collection[int] = ()) -> bytes:
        """Return the content of a file as it was written, except for some flipped bits.

        No fault concerns this operation.
        """
        return self._file(path).current.undamaged(flipped)

    def flipped(self, path: str) -> frozenset[int]:
        """Return the positions of the flipped bits of a file."""
        return frozenset(self._file(path).current.flipped)

    def write(self, path: str, position: int, chunks: Sequence[Buffer]) -> None:
        self._count_operation()
        self._raise_io_error("write")
        parent, name = self._parent(path), basename(path)
        if name not in parent.entries:
            parent.entries[name] = File()
            parent.record_change()
        file = self._file(path)
        for chunk in chunks:
            file.write(position, bytes(chunk))
            position += len(chunk)

    def sync(self, *paths: str) -> None:
        for path in paths:
            self._count_operation()
            if path == self.failing_sync_path:
                self.failing_sync_path = None
                self._file(path).drop_unsynced()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if "sync" in self.io_errors:
                self._file(path).drop_unsynced()
                self._raise_io_error("sync")
            self._file(path).sync()

    def truncate(self, path: str, length: int) -> None:
        self._count_operation()
        self._file(path).truncate(length)

    def rename(self, old: str, new: str) -> None:
        self._count_operation()
        assert dirname(old) == dirname(new)
        parent = self._parent(old)
        if basename(old) not in parent.entries:
            raise FileNotFoundError(old)
        parent.entries[basename(new)] = parent.entries.pop(basename(old))
        parent.record_change()

    def remove(self, path: str) -> None:
        self._count_operation()
        parent = self._find(dirname(path))
        if isinstance(parent, Directory) and basename(path) in parent.entries:
            del parent.entries[basename(path)]
            parent.record_change()

    def make_directory(self, path: str) -> None:
        self._count_operation()
        parent = self._parent(path)
        if basename(path) not in parent.entries:
            parent.entries[basename(path)] = Directory()
            parent.record_change()

    def sync_directory(self, path: str) -> None:
        self._count_operation()
        found = self._find(path)
        if not isinstance(found, Directory):
            raise FileNotFoundError(path)
        found.sync()

    def damage(self, path: str, position: int) -> None:
        """Flip a bit of a file."""
        self._file(path).flip_bit(position)

    def is_damaged(self, path: str, position: int) -> bool:
        """Return whether a flipped bit can be read from a file, now or after a power failure."""
        return any(file.is_damaged(position) for file in self._files_named(path))

    def repair(self, path: str, position: int) -> None:
        """Flip a bit back that `damage` flipped, except in bytes that were written since."""
        for file in self._files_named(path):
            file.repair(position)

    def _count_operation(self) -> None:
        self.operations += 1
        if self.crash_after is not None:
            if self.crash_after == 0:
                if not self.has_lost_power:
                    self.on_fault(POWER_FAILURE)
                self.has_lost_power = True
                raise PowerLossError
            self.crash_after -= 1

    def _raise_io_error(self, operation: str) -> None:
        code = self.io_errors.get(operation)
        if code is not None:
            self.on_fault(IO_ERRORS.get((operation, code), operation))
            raise OSError(code, os.strerror(code))

    def _find(self, path: str) -> File | Directory | None:
        found: File | Directory | None = self.root
        for part in path.split("/") if path else ():
            found = found.entries.get(part) if isinstance(found, Directory) else None
        return found

    def _files_named(self, path: str) -> list[File]:
        """Return the files that have this path, now or after a power failure."""
        parent = self._find(dirname(path))
        if not isinstance(parent, Directory):
            return []
        states = [parent.entries, *parent.unsynced_states]
        found = [state.get(basename(path)) for state in states]
        return [file for file in dict.fromkeys(found) if isinstance(file, File)]

    def _parent(self, path: str) -> Directory:
        found = self._find(dirname(path))
        if not isinstance(found, Directory):
            raise FileNotFoundError(path)
        return found

    def _file(self, path: str) -> File:
        found = self._find(path)
        if not isinstance(found, File):
            raise FileNotFoundError(path)
        return found


def _ignore_fault(what: str) -> None:
    """Ignore a fault."""


def _sectors(position: int, data: bytes) -> list[tuple[int, bytes]]:
    pieces, at = [], 0
    while at < len(data):
        size = SECTOR - (position + at) % SECTOR
        pieces.append((position + at, data[at : at + size]))
        at += size
    return pieces
