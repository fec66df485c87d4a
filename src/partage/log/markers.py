"""What is known to be durable: one slot of 64 bytes a partition, in the file ``synced``.

A slot says: all segments before ``base_offset`` are whole on the disk, indexes and all, and in
that segment all bytes before ``position``, which is where ``end_offset`` begins. It is written
after the sync that makes it true, and synced itself only now and then: it may lag behind the truth
but never runs ahead of it. Sixty-four bytes lie within one sector, which a disk writes at once or
not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec
from crc32c import crc32c

from partage.log.disk import Disk
from partage.log.layout import MARKERS
from partage.log.outcomes import Write
from partage.log.performing import read_file

_SLOT: Final = struct.Struct(">IHHi16sqqqq4x")
SLOT_SIZE: Final = _SLOT.size  # 64
_VERSION: Final = 1
_CLEAN: Final = 1
_EMPTY: Final = bytes(SLOT_SIZE)

_Key = tuple[bytes, int]  # topic id, partition


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What is known durable of one partition.

    ``is_clean``: the log was closed at this very position, with indexes and producers written.
    """

    base_offset: int = 0
    position: int = 0
    end_offset: int = 0
    log_start_offset: int = 0
    is_clean: bool = False


class Slot:
    """A partition's place in the file of markers; ``marker`` is the latest, or what was found."""

    def __init__(
        self, number: int, topic_id: bytes, partition: int, marker: Marker | None = None
    ) -> None:
        self.number = number
        self.topic_id = topic_id
        self.partition = partition
        self.marker = marker

    def write(self, marker: Marker) -> Write:
        """What puts a marker into the slot."""
        self.marker = marker
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
        return Write(MARKERS, self.number * SLOT_SIZE, [checksum + content[4:]])


class Markers:
    """The slots of all partitions."""

    def __init__(self) -> None:
        self._slots: dict[_Key, Slot] = {}
        self._free: list[int] = []
        self._count = 0
        self.damaged = 0

    @classmethod
    def load(cls, disk: Disk, partitions: Iterable[_Key]) -> Markers:
        """The markers of these partitions, by topic id and number; other slots are free.

        The file is made if there is none. ``damaged`` counts the slots whose checksum is wrong,
        and a file that is missing though it shouldn't: whose they were is not known, so a
        partition without a slot is then opened with nothing cut (see `recovery`).
        """
        markers, known = cls(), set(partitions)
        content = read_file(disk, MARKERS)
        if content is None:
            markers.damaged = 1 if known else 0
            content = b""
            disk.write(MARKERS, 0, [])
            disk.sync_directory("")
        markers._count = -(-len(content) // SLOT_SIZE)
        for number in range(markers._count):
            markers._take(number, content[number * SLOT_SIZE :][:SLOT_SIZE], known)
        markers._free.reverse()
        return markers

    def slot(self, topic_id: bytes, partition: int) -> Slot:
        """The partition's slot; a free one the first time."""
        key = topic_id, partition
        if key not in self._slots:
            self._slots[key] = Slot(self._next(), topic_id, partition)
        return self._slots[key]

    def found(self, topic_id: bytes, partition: int) -> Marker | None:
        """The partition's latest marker, as far as it has one."""
        slot = self._slots.get((topic_id, partition))
        return slot.marker if slot else None

    def release(self, topic_id: bytes, partition: int) -> None:
        """Give up a deleted partition's slot; what it holds names a topic that is gone."""
        slot = self._slots.pop((topic_id, partition), None)
        if slot:
            self._free.append(slot.number)

    def _take(self, number: int, content: bytes, known: set[_Key]) -> None:
        marker = _decode(content)
        if marker is None and content != _EMPTY:
            self.damaged += 1
        if marker is None or marker[0] not in known:
            self._free.append(number)
            return
        key, found = marker
        self._slots[key] = Slot(number, *key, found)

    def _next(self) -> int:
        if self._free:
            return self._free.pop()
        self._count += 1
        return self._count - 1


def _decode(content: bytes) -> tuple[_Key, Marker] | None:
    if len(content) < SLOT_SIZE:
        return None
    checksum, version, flags, partition, topic_id, *offsets = _SLOT.unpack(content)
    if version != _VERSION or checksum != crc32c(content[4:]):
        return None
    base_offset, position, end_offset, log_start_offset = offsets
    return (topic_id, partition), Marker(
        base_offset=base_offset,
        position=position,
        end_offset=end_offset,
        log_start_offset=log_start_offset,
        is_clean=bool(flags & _CLEAN),
    )
