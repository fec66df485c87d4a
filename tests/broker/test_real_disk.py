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


def test_sync_many_files_syncs_each_once(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_sync_without_fdatasync_uses_full_fsync(
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


def test_read_cached_without_rwf_nowait_returns_none(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, all reads use a thread."""
    monkeypatch.delattr(os, "RWF_NOWAIT")
    assert disk.read_cached("7", 0, 1) is None
    disk.close()


@pytest.mark.parametrize("place", [0, 1, len(MANY)])
def test_sync_failure_of_one_file_fails_the_call(disk: RealDisk, place: int) -> None:
    with pytest.raises(FileNotFoundError):
        disk.sync(*MANY[:place], "missing", *MANY[place:])
    disk.sync(*MANY)  # the disk still works
    disk.close()


def test_read_during_rename_caches_no_stale_descriptor(
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


def test_read_during_removal_caches_no_stale_descriptor(
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
