"""A broker's data directory: held by one broker at a time, and belonging to one cluster."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

from partage.broker.ids import fresh_cluster_id
from partage.log.disk import Disk
from partage.log.performing import read_file, replace_file

_LOCK: Final = ".lock"
_META: Final = "meta.json"


class DirectoryHeld(Exception):  # noqa: N818 - named after what the directory is
    """Another broker uses the directory; the message names its process."""


class DirectoryLock:
    """Holds a directory until `release`, or until the process is gone."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise DirectoryHeld(
                f"{root} is in use by another broker (process {holder or 'unknown'}); stop it, or "
                "give this one a directory of its own with --data-dir"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of the directory."""
        os.close(self._fd)


def cluster_id_of(disk: Disk) -> str:
    """The id of the cluster whose data this is; drawn for a new directory."""
    content = read_file(disk, _META)
    if content is not None:
        cluster_id: str = json.loads(content)["cluster_id"]
        return cluster_id
    cluster_id = fresh_cluster_id()
    replace_file(disk, _META, json.dumps({"cluster_id": cluster_id}).encode())
    return cluster_id
