"""The disk in memory behaves like a directory."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from partage.lab.environment.disk import CrashDisk
from partage.log.disk import Disk
from partage.log.io import perform_writes, read_file, replace_file
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Write

from .directory_disk import DirectoryDisk


def outcome(disk: Disk, name: str, *arguments: Any) -> object:
    try:
        return getattr(disk, name)(*arguments)
    except FileNotFoundError:
        return FileNotFoundError


@pytest.mark.parametrize("seed", range(5))
def test_both_disks_behave_alike(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    disks: list[Disk] = [DirectoryDisk(tmp_path), MemoryDisk(), CrashDisk()]
    paths = ["a", "b", "x/a", "x/b", "y/a"]
    for _ in range(300):
        path = rng.choice(paths)
        name, arguments = rng.choice(
            [
                ("write", (path, rng.randrange(50), [rng.randbytes(9), memoryview(b"ab")])),
                ("read", (path, rng.randrange(60), rng.randrange(60))),
                ("size", (path,)),
                ("truncate", (path, rng.randrange(60))),
                ("rename", (path, path[:-1] + rng.choice("ab"))),
                ("remove", (rng.choice([*paths, "x"]),)),
                ("make_directory", (rng.choice("xy"),)),
                ("sync", (path,)),
                ("sync_directory", (rng.choice(["", "x"]),)),
                ("names", (rng.choice(["", "x", "y"]),)),
            ]
        )
        outcomes = [outcome(disk, name, *arguments) for disk in disks]
        assert outcomes[0] == outcomes[1] == outcomes[2], (name, arguments)


def test_directory_is_renamed_with_its_content() -> None:
    disk = MemoryDisk()
    disk.make_directory("a/b")
    disk.write("a/b/c", 0, [b"x"])
    disk.rename("a", "z")
    assert (disk.names(""), disk.names("z"), disk.names("z/b")) == (["z"], ["b"], ["c"])
    assert disk.read("z/b/c", 0, 9) == b"x"
    assert disk.names("a/b") == []
    disk.remove("z")
    assert (disk.names(""), disk.names("z/b")) == ([], [])


def test_directory_is_not_a_file() -> None:
    disk = MemoryDisk()
    disk.make_directory("a")
    with pytest.raises(IsADirectoryError):
        disk.write("a", 0, [b"x"])
    with pytest.raises(FileNotFoundError):
        disk.write("b/c", 0, [b"x"])


class CountingDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, object]] = []

    def write(self, path: str, position: int, chunks: Any) -> None:
        self.calls.append(("write", (path, position)))
        super().write(path, position, chunks)

    def sync(self, *paths: str) -> None:
        self.calls.append(("sync", paths))

    def sync_directory(self, path: str) -> None:
        self.calls.append(("sync_directory", path))


def test_group_of_writes_takes_few_calls() -> None:
    disk = CountingDisk()
    writes = [
        Write("a", 0, [b"12"]),
        Write("a", 2, [b"3", b"4"]),
        Write("b", 5, [b"x"]),
        Write("a", 4, [b"5"]),
    ]
    perform_writes(disk, writes)
    assert disk.calls == [
        ("write", ("a", 0)),
        ("write", ("b", 5)),
        ("write", ("a", 4)),
        ("sync", ("a", "b")),
        ("sync_directory", ""),
    ]
    assert disk.read("a", 0, 9) == b"12345"
    disk.calls.clear()
    perform_writes(disk, writes, sync=False)
    assert {call for call, _ in disk.calls} == {"write"}
    perform_writes(disk, [])


def test_replace_file_is_atomic() -> None:
    disk = MemoryDisk()
    assert read_file(disk, "a") is None
    replace_file(disk, "a", b"long content")
    disk.write("a.tmp", 0, [b"longer than what comes"])
    replace_file(disk, "a", b"short")
    assert read_file(disk, "a") == b"short"
    assert disk.names("") == ["a"]
