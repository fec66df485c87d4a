"""Durable checkpoints: one slot of 64 bytes for each partition, in the file ``synced``.

A checkpoint states that all segments before ``base_offset`` are complete on disk, including their
indexes. In that segment, all bytes before ``position`` are durable, and ``end_offset`` begins at
``position``. A checkpoint is written after the sync that makes it true. It is synced only
occasionally, so it may lag behind the truth but never runs ahead of it. A slot lies within one disk
sector, which is written completely or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from partage.log.disk import Disk
from partage.log.io import read_file
from partage.log.layout import CHECKPOINT_FILE
from partage.log.results import Write
from partage.wire.records.checksum import crc32c

_SLOT: Final = struct.Struct(">IHHi16sqqqq4x")
SLOT_SIZE: Final = _SLOT.size  # 64
_VERSION: Final = 1
_CLEAN: Final = 1
_EMPTY: Final = bytes(SLOT_SIZE)

_Key = tuple[bytes, int]  # topic id, partition


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The durable position of one partition.

    ``is_clean`` means that the log was closed at this position, with indexes and producers written.
    """

    base_offset: int = 0
    position: int = 0
    end_offset: int = 0
    log_start_offset: int = 0
    is_clean: bool = False


class CheckpointSlot:
    """A partition's slot in the checkpoint file. ``checkpoint`` is its latest content."""

    def __init__(
        self, number: int, topic_id: bytes, partition: int, marker: Checkpoint | None = None
    ) -> None:
        self.number = number
        self.topic_id = topic_id
        self.partition = partition
        self.checkpoint = marker

    def prepare_write(self, marker: Checkpoint) -> Write:
        """Return the write of a checkpoint into the slot."""
        self.checkpoint = marker
        content = _SLOT.pack(
            0,
            _VERSION,
            _CLEAN if marker.is_clean else 0,
            self.partition,
            self.topic_id,
            marker.base_offset,
            marker.position,
            marker.end_offset,
            marker.log_start_offset,
        )
        checksum = crc32c(content[4:]).to_bytes(4, "big")
        return Write(CHECKPOINT_FILE, self.number * SLOT_SIZE, [checksum + content[4:]])


class CheckpointFile:
    """The checkpoint slots of all partitions."""

    def __init__(self) -> None:
        self._slots: dict[_Key, CheckpointSlot] = {}
        self._free: list[int] = []
        self._count = 0
        self.damaged_count = 0

    @classmethod
    def load(cls, disk: Disk, partitions: Iterable[_Key]) -> CheckpointFile:
        """Load the checkpoints of ``partitions``; all other slots are free.

        Creates the file if it does not exist. ``damaged_count`` counts slots with a wrong checksum,
        and a file that is missing although there are partitions. The owner of a damaged slot is
        unknown. Therefore a partition without a slot is then opened without truncation (see
        `partition_recovery`).
        """
        markers, known = cls(), set(partitions)
        content = read_file(disk, CHECKPOINT_FILE)
        if content is None:
            markers.damaged_count = 1 if known else 0
            content = b""
            disk.write(CHECKPOINT_FILE, 0, [])
            disk.sync_directory("")
        markers._count = -(-len(content) // SLOT_SIZE)
        for number in range(markers._count):
            markers._load_slot(number, content[number * SLOT_SIZE :][:SLOT_SIZE], known)
        markers._free.reverse()
        return markers

    def slot(self, topic_id: bytes, partition: int) -> CheckpointSlot:
        """Return the partition's slot; allocate a free one on first use."""
        key = topic_id, partition
        if key not in self._slots:
            self._slots[key] = CheckpointSlot(self._next_free(), topic_id, partition)
        return self._slots[key]

    def get(self, topic_id: bytes, partition: int) -> Checkpoint | None:
        """Return the partition's latest checkpoint; None if it has none."""
        slot = self._slots.get((topic_id, partition))
        return slot.checkpoint if slot else None

    def release(self, topic_id: bytes, partition: int) -> None:
        """Free the slot of a deleted partition. Its content names a topic that no longer exists."""
        slot = self._slots.pop((topic_id, partition), None)
        if slot:
            self._free.append(slot.number)

    def _load_slot(self, number: int, content: bytes, known: set[_Key]) -> None:
        marker = _decode(content)
        if marker is None and content != _EMPTY:
            self.damaged_count += 1
        if marker is None or marker[0] not in known:
            self._free.append(number)
            return
        key, found = marker
        self._slots[key] = CheckpointSlot(number, *key, found)

    def _next_free(self) -> int:
        if self._free:
            return self._free.pop()
        self._count += 1
        return self._count - 1


def _decode(content: bytes) -> tuple[_Key, Checkpoint] | None:
    if len(content) < SLOT_SIZE:
        return None
    checksum, version, flags, partition, topic_id, *offsets = _SLOT.unpack(content)
    if version != _VERSION or checksum != crc32c(content[4:]):
        return None
    base_offset, position, end_offset, log_start_offset = offsets
    return (topic_id, partition), Checkpoint(
        base_offset=base_offset,
        position=position,
        end_offset=end_offset,
        log_start_offset=log_start_offset,
        is_clean=bool(flags & _CLEAN),
    )
