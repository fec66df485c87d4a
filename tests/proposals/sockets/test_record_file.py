"""The file with the records of a coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partage.broker.topics.data_directory import DirectoryLockedError, load_cluster_id
from partage.broker.topics.real_disk import RealDisk
from partage.log.errors import DamagedFileError
from partage.proposals.join_group.records import CommittedOffsetRecord, GenerationRecord, Record
from partage.proposals.sockets.join_group import record_file
from partage.proposals.sockets.join_group.record_file import DESIGN_FILE, RECORD_FILE, RecordFile


def offset(number: int, partition: int = 0) -> CommittedOffsetRecord:
    return CommittedOffsetRecord(group_id="g", topic="t", partition=partition, offset=number)


def single(directory: Path) -> RecordFile:
    return RecordFile(directory, "single-assignor")


def write(directory: Path, *records: Record) -> None:
    file = single(directory)
    asyncio.run(file.append(records))
    file.close()


def read(directory: Path) -> list[Record]:
    file = single(directory)
    file.close()
    return file.records


def test_reopened_file_has_the_latest_records(tmp_path: Path) -> None:
    generation = GenerationRecord(group_id="g", generation=2)
    write(tmp_path, GenerationRecord(group_id="g", generation=1), offset(1), offset(5, 1))
    write(tmp_path, generation, offset(2))
    assert read(tmp_path) == [generation, offset(2), offset(5, 1)]


def test_incomplete_last_line_is_dropped_and_overwritten(tmp_path: Path) -> None:
    write(tmp_path, offset(1), offset(2, 1))
    path = tmp_path / RECORD_FILE
    path.write_bytes(path.read_bytes()[:-3])
    write(tmp_path, offset(7, 2))
    assert read(tmp_path) == [offset(1), offset(7, 2)]


@pytest.mark.parametrize("line", [b"{}", b"x", b'{"type":"offset","group_id":"g"}', b"\xff"])
def test_damaged_line_is_an_error_that_names_it(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, offset(1))
    with (tmp_path / RECORD_FILE).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DamagedFileError, match=r"^line 2 of records\.jsonl is not a record"):
        single(tmp_path)
    (tmp_path / RECORD_FILE).unlink()
    assert read(tmp_path) == [], "the lock was not released"


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    file = single(tmp_path)
    with pytest.raises(DirectoryLockedError, match="is in use by another broker"):
        single(tmp_path)
    file.close()


def test_outdated_lines_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_OUTDATED_MAX", 10)
    file = single(tmp_path)
    for number in range(40):
        asyncio.run(file.append([offset(number)]))
    file.close()
    lines = (tmp_path / RECORD_FILE).read_bytes().splitlines()
    assert 0 < len(lines) <= 13
    assert read(tmp_path) == [offset(39)]


def test_records_of_another_design_are_refused(tmp_path: Path) -> None:
    write(tmp_path, offset(1))
    with pytest.raises(DamagedFileError, match="has the records of a single-assignor coordinator"):
        RecordFile(tmp_path, "multi-assignor")
    assert read(tmp_path) == [offset(1)]


def test_records_without_a_design_are_accepted_once(tmp_path: Path) -> None:
    """Earlier versions wrote no design."""
    write(tmp_path, offset(1))
    (tmp_path / DESIGN_FILE).unlink()
    RecordFile(tmp_path, "multi-assignor").close()
    with pytest.raises(DamagedFileError, match="multi-assignor"):
        single(tmp_path)


def test_data_directory_of_broker_is_refused(tmp_path: Path) -> None:
    load_cluster_id(RealDisk(tmp_path))
    with pytest.raises(DamagedFileError, match="belongs to a broker"):
        single(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [".lock", "meta.json"]


def test_broker_refuses_records_of_coordinator(tmp_path: Path) -> None:
    write(tmp_path, offset(1))
    with pytest.raises(DamagedFileError, match="has the records of a coordinator of partage prop"):
        load_cluster_id(RealDisk(tmp_path))
