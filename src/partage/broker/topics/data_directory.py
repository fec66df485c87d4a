"""A broker's data directory: held by one broker at a time, and belonging to one cluster."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from partage.broker.ids import fresh_cluster_id
from partage.log.disk import Disk
from partage.log.errors import DamagedFileError
from partage.log.io import read_file, replace_file

T = TypeVar("T")

LOCK_FILE: Final = ".lock"
_META: Final = "meta.json"


class DirectoryLockedError(Exception):
    """Another broker uses the directory; the message names its process."""


class DirectoryLock:
    """Holds a directory until `release`, or until the process is gone.

    Raises:
        DirectoryLockedError: another broker has it.
        OSError: it cannot be made, or written to.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise DirectoryLockedError(
                f"{root} is in use by another broker (process {holder or 'unknown'}); stop that "
                "broker, "
                "or use another directory with --data-dir"
            ) from None
        except OSError:  # such as a file system that knows no locks
            os.close(self._fd)
            raise
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of the directory."""
        os.close(self._fd)


class MetaProperties(msgspec.Struct, frozen=True):
    """Whose data it is. Of several brokers, which one's; and an id of the directory itself."""

    cluster_id: str
    broker_id: int | msgspec.UnsetType = msgspec.UNSET
    directory_id: str | msgspec.UnsetType = msgspec.UNSET


def load_cluster_id(disk: Disk) -> str:
    """The id of the cluster whose data this is; drawn for a new directory.

    Raises:
        DamagedFileError: it cannot be read.
    """
    meta = read_meta_properties(disk)
    if meta is None:
        meta = MetaProperties(fresh_cluster_id())
        write_meta_properties(disk, meta)
    elif meta.broker_id is not msgspec.UNSET:
        raise DamagedFileError(
            f"the data directory belongs to broker {meta.broker_id} of a cluster; start it with "
            "the same --state and --broker-id as before"
        )
    return meta.cluster_id


def read_meta_properties(disk: Disk) -> MetaProperties | None:
    """Whose data it is; None in a new directory. Raises `DamagedFileError`."""
    return read_json_file(disk, _META, MetaProperties, "remove it; the cluster then gets a new id")


def write_meta_properties(disk: Disk, meta: MetaProperties) -> None:
    """Let the data be theirs; returns once that is durable."""
    replace_file(disk, _META, msgspec.json.encode(meta))


def read_json_file(disk: Disk, path: str, kind: type[T], otherwise: str) -> T | None:
    """A small file of JSON, None if there is none.

    Raises:
        DamagedFileError: it is something else; the message has what can be done ``otherwise``.
    """
    content = read_file(disk, path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise DamagedFileError(
            f"{path} cannot be read: {error}. Restore it from a copy, or {otherwise}."
        ) from None
