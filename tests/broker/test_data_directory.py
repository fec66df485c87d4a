"""The lock of a data directory."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from partage.broker.topics.data_directory import DirectoryLock, DirectoryLockedError


def test_a_directory_is_held_by_one_until_it_lets_go(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(
        DirectoryLockedError, match=f"in use by another broker .process {os.getpid()}."
    ):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_file_system_without_locks_is_not_taken_for_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusing)
    with pytest.raises(OSError, match="No locks available"):
        DirectoryLock(tmp_path)
