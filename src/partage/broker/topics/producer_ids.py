"""Producer ids that are never given out twice."""

from __future__ import annotations

from typing import Final

import msgspec

from partage.broker.topics.data_directory import read_json_file
from partage.log.disk import Disk
from partage.log.io import replace_file

_PATH: Final = "producer-ids.json"
_BLOCK: Final = 1 << 32  # reserved at each start; two thousand million starts are left after it
_REPAIR_ADVICE: Final = (
    'write {"next": N} into it, with N above 4294967296 times the number of broker starts so far: '
    "producer ids must never be reused"
)


class _File(msgspec.Struct):
    next: int


class ProducerIdManager:
    """Counts through a block that was reserved on disk before the first of it was used.

    Raises `DamagedFileError` if what was reserved before cannot be read.
    """

    def __init__(self, disk: Disk) -> None:
        file = read_json_file(disk, _PATH, _File, _REPAIR_ADVICE)
        self._next = file.next if file else 0
        replace_file(disk, _PATH, msgspec.json.encode(_File(self._next + _BLOCK)))

    @classmethod
    def from_block(cls, first: int) -> ProducerIdManager:
        """Ids of a block that was reserved elsewhere, beginning with ``first``."""
        ids = cls.__new__(cls)
        ids._next = first
        return ids

    def next_id(self) -> int:
        """A producer id, 0 or above."""
        self._next += 1
        return self._next - 1
