"""The lock of a data directory."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from partage.broker.topics.data_directory import DirectoryLock, DirectoryLockedError


def test_lock_is_exclusive_until_released(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(
        DirectoryLockedError, match=f"in use by another broker .process {os.getpid()}."
    ):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_lock_unsupported_file_system_raises_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusing)
    with pytest.raises(OSError, match="No locks available"):
        DirectoryLock(tmp_path)
