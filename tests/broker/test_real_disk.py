from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from partage.broker.topics.real_disk import RealDisk

MANY = [f"{number}" for number in range(20)]


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    disk = RealDisk(tmp_path)
    for path in MANY:
        disk.write(path, 0, [b"x"])
    return disk


def test_each_of_many_files_is_synced_once(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fdatasync = os.fdatasync

    def recorded(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", recorded)
    disk.sync(*MANY)
    assert sorted(synced) == sorted(MANY)
    synced.clear()
    disk.sync("7")
    disk.sync()
    assert synced == ["7"]
    disk.close()


@pytest.mark.parametrize("full_sync_works", [None, True, False])
def test_a_system_without_fdatasync(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, full_sync_works: bool | None
) -> None:
    """macOS: only F_FULLFSYNC reaches the device, if the file system supports it."""
    synced: list[str] = []

    def full_sync(fd: int, command: int) -> None:
        assert command == 51
        if not full_sync_works:
            raise OSError(errno.ENOTSUP, "not on this file system")
        synced.append("full")

    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append("fsync"))
    if full_sync_works is not None:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", full_sync)
    disk.sync("7")
    disk.sync_directory("")
    assert synced == ["full" if full_sync_works else "fsync"] * 2
    disk.close()


def test_a_system_that_cannot_say_what_is_cached(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, all reads use a thread."""
    monkeypatch.delattr(os, "RWF_NOWAIT")
    assert disk.read_cached("7", 0, 1) is None
    disk.close()


@pytest.mark.parametrize("place", [0, 1, len(MANY)])
def test_a_file_that_cannot_be_synced_fails_them_all(disk: RealDisk, place: int) -> None:
    with pytest.raises(FileNotFoundError):
        disk.sync(*MANY[:place], "missing", *MANY[place:])
    disk.sync(*MANY)  # the disk still works
    disk.close()


def test_a_read_in_the_middle_of_a_rename_holds_no_file_that_is_gone(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk.make_directory("t")
    disk.write("t/log", 0, [b"old"])
    rename = os.rename

    def disturbed(old: Path, new: Path) -> None:
        disk.read("t/log", 0, 3)  # as a fetch in another thread may do
        rename(old, new)

    monkeypatch.setattr(os, "rename", disturbed)
    disk.rename("t", "gone")
    disk.make_directory("t")
    disk.write("t/log", 0, [b"new"])
    assert (tmp_path / "t/log").read_bytes() == b"new"
    assert (tmp_path / "gone/log").read_bytes() == b"old"
    disk.close()


def test_a_read_in_the_middle_of_a_removal_holds_no_file_that_is_gone(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unlink = Path.unlink

    def disturbed(path: Path, missing_ok: bool = False) -> None:
        disk.read(path.name, 0, 1)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", disturbed)
    disk.remove("7")
    disk.write("7", 0, [b"new"])
    assert (tmp_path / "7").read_bytes() == b"new"
    disk.close()
