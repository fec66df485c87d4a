"""The data directory: locked by one broker at a time, and owned by one cluster."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from partage.broker.ids import RANDOM_IDS, IdSource
from partage.log.disk import Disk
from partage.log.errors import DamagedFileError
from partage.log.io import read_file, replace_file

T = TypeVar("T")

LOCK_FILE: Final = ".lock"
#: The records of a coordinator of ``partage proposal``, in a data directory that is not a broker's.
COORDINATOR_RECORDS: Final = "records.jsonl"
_META: Final = "meta.json"


class DirectoryLockedError(Exception):
    """Raised if another broker uses the directory; the message names its process."""


class DirectoryLock:
    """Holds the lock on a directory until `release`, or until the process ends.

    Raises:
        DirectoryLockedError: another broker holds the lock.
        OSError: the directory cannot be created or written to.
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
        except OSError:  # for example a file system without locks
            os.close(self._fd)
            raise
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


class MetaProperties(msgspec.Struct, frozen=True):
    """The owner of a data directory: cluster id, broker id (in a cluster) and directory id."""

    cluster_id: str
    broker_id: int | msgspec.UnsetType = msgspec.UNSET
    directory_id: str | msgspec.UnsetType = msgspec.UNSET


def load_cluster_id(disk: Disk, ids: IdSource = RANDOM_IDS) -> str:
    """Return the cluster id of the directory; a new directory gets a random one.

    Raises:
        DamagedFileError: the file cannot be read, or a broker of a cluster owns the directory.
    """
    meta = read_meta_properties(disk)
    if meta is None:
        meta = MetaProperties(ids.fresh_cluster_id())
        write_meta_properties(disk, meta)
    elif meta.broker_id is not msgspec.UNSET:
        raise DamagedFileError(
            f"the data directory belongs to broker {meta.broker_id} of a cluster; start it with "
            "the same --state and --broker-id as before"
        )
    return meta.cluster_id


def read_meta_properties(disk: Disk) -> MetaProperties | None:
    """Return the owner of the directory, or None if it is new.

    Raises:
        DamagedFileError: the file cannot be decoded, or the directory is not a broker's.
    """
    meta = read_json_file(disk, _META, MetaProperties, "remove it; the cluster then gets a new id")
    if meta is None and read_file(disk, COORDINATOR_RECORDS) is not None:
        raise DamagedFileError(
            "it has the records of a coordinator of partage proposal; use another directory with "
            "--data-dir"
        )
    return meta


def write_meta_properties(disk: Disk, meta: MetaProperties) -> None:
    """Write the owner of the directory; return once it is durable."""
    replace_file(disk, _META, msgspec.json.encode(meta))


def read_json_file(disk: Disk, path: str, kind: type[T], otherwise: str) -> T | None:
    """Read a small JSON file; return None if it does not exist.

    Args:
        disk: the data directory.
        path: the file.
        kind: the type to decode.
        otherwise: the advice for a damaged file, after "or".

    Raises:
        DamagedFileError: the file cannot be decoded.
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
