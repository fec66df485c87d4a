"""The file with the records of a coordinator: one JSON object in each line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from partage.broker.topics.data_directory import (
    COORDINATOR_RECORDS,
    DirectoryLock,
    read_json_file,
    read_meta_properties,
)
from partage.broker.topics.real_disk import RealDisk
from partage.log.errors import DamagedFileError
from partage.log.io import read_file, replace_file
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.records import CommittedOffsetRecord, GroupRemovedRecord, Record

#: The name of the file in the data directory.
RECORD_FILE: Final = COORDINATOR_RECORDS
#: The name of the file with the design of the coordinator.
DESIGN_FILE: Final = "design.json"
#: The file is rewritten when this many of its lines, and most of them, are outdated.
_OUTDATED_MAX: Final = 10_000


class RecordOwner(msgspec.Struct, frozen=True):
    """The design whose coordinator has written the records."""

    design: str


class RecordFile:
    """The records of a coordinator in a data directory, which it locks.

    A last line that is incomplete is dropped: its records were not acknowledged.

    Args:
        directory: The data directory. It is created if it does not exist.
        design: The name of the coordinator's design.

    Raises:
        DirectoryLockedError: Another process uses the directory.
        DamagedFileError: A line is not a record, or the directory belongs to another design or to
            a broker.
        OSError: The directory cannot be used.
    """

    def __init__(self, directory: Path, design: str) -> None:
        self._lock = DirectoryLock(directory)
        try:
            self._disk = RealDisk(directory)
            has_owner = _has_owner(self._disk, design)
            # By group, then by partition; the generation of the group has no partition.
            self._latest: dict[str, dict[TopicPartition | None, Record]] = {}
            self._latest_count = 0
            for record in _decode(read_file(self._disk, RECORD_FILE) or b""):
                self._keep(record)
            self._rewrite()
            if not has_owner:
                owner = msgspec.json.encode(RecordOwner(design))
                replace_file(self._disk, DESIGN_FILE, owner)
        except BaseException:
            self._lock.release()
            raise

    @property
    def records(self) -> list[Record]:
        """The latest record of each group and of each partition."""
        return [record for of_group in self._latest.values() for record in of_group.values()]

    async def append(self, records: Sequence[Record]) -> None:
        """Return when all records are durable.

        Raises:
            OSError: The file cannot be written.
        """
        await asyncio.to_thread(self._append, records)

    def close(self) -> None:
        """Close the file and release the directory."""
        self._disk.close()
        self._lock.release()

    def _append(self, records: Sequence[Record]) -> None:
        for record in records:
            self._keep(record)
        self._line_count += len(records)
        if self._line_count > 2 * self._latest_count + _OUTDATED_MAX:
            self._rewrite()
            return
        content = _encode(records)
        self._disk.write(RECORD_FILE, self._size, [content])
        self._disk.sync(RECORD_FILE)
        self._size += len(content)

    def _rewrite(self) -> None:
        """Replace the file by one with the latest records only."""
        content = _encode(self.records)
        replace_file(self._disk, RECORD_FILE, content)
        self._size, self._line_count = len(content), self._latest_count

    def _keep(self, record: Record) -> None:
        """Keep a record instead of the earlier one of its group or partition."""
        if isinstance(record, GroupRemovedRecord):
            self._latest_count -= len(self._latest.pop(record.group_id, {}))
            return
        of_group = self._latest.setdefault(record.group_id, {})
        key = (
            TopicPartition(record.topic, record.partition)
            if isinstance(record, CommittedOffsetRecord)
            else None
        )
        self._latest_count += key not in of_group
        of_group[key] = record


def _has_owner(disk: RealDisk, design: str) -> bool:
    """Return True if the directory belongs to this design; False if it has no owner.

    Raises:
        DamagedFileError: It belongs to a broker, or to another design.
    """
    if read_file(disk, RECORD_FILE) is None and read_meta_properties(disk) is not None:
        raise DamagedFileError(
            "it belongs to a broker (partage broker); use another directory with --data-dir"
        )
    owner = read_json_file(disk, DESIGN_FILE, RecordOwner, "remove it if its design is known")
    if owner is not None and owner.design != design:
        raise DamagedFileError(
            f"it has the records of a {owner.design} coordinator, and this is a {design} "
            "coordinator; use another directory with --data-dir"
        )
    return owner is not None


def _encode(records: Sequence[Record]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _decode(content: bytes) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            records.append(msgspec.json.decode(line, type=Record))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise DamagedFileError(
                f"line {number} of {RECORD_FILE} is not a record: {error}; remove the line, or "
                "restore the file from a copy"
            ) from None
    return records
