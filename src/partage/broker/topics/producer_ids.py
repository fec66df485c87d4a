"""Unique producer ids."""

from __future__ import annotations

from typing import Final

import msgspec

from partage.broker.topics.data_directory import read_json_file
from partage.log.disk import Disk
from partage.log.io import replace_file

_PATH: Final = "producer-ids.json"
_BLOCK: Final = 1 << 32  # reserved at each start; enough for two billion starts
_REPAIR_ADVICE: Final = (
    'write {"next": N} into it, with N above 4294967296 times the number of broker starts so far: '
    "producer ids must never be reused"
)


class _File(msgspec.Struct):
    next: int


class ProducerIdManager:
    """Allocates ids from a block that was reserved on disk before its first use.

    Raises:
        DamagedFileError: the earlier reservation cannot be read.
    """

    def __init__(self, disk: Disk) -> None:
        file = read_json_file(disk, _PATH, _File, _REPAIR_ADVICE)
        self._next = file.next if file else 0
        replace_file(disk, _PATH, msgspec.json.encode(_File(self._next + _BLOCK)))

    @classmethod
    def without_block(cls) -> ProducerIdManager:
        """Return a manager that must not be used before `use_block`."""
        ids = cls.__new__(cls)
        ids._next = -1
        return ids

    def use_block(self, first: int) -> None:
        """Use a block that was reserved elsewhere and begins with ``first``."""
        self._next = first

    def next_id(self) -> int:
        """Return the next producer id, 0 or greater."""
        assert self._next >= 0, "no producer ids are reserved"
        self._next += 1
        return self._next - 1
