"""Producer ids that are never given out twice."""

from __future__ import annotations

import json
from typing import Final

from partage.log.disk import Disk
from partage.log.performing import read_file, replace_file

_PATH: Final = "producer-ids.json"
_BLOCK: Final = 1 << 32  # reserved at each start; two thousand million starts are left after it


class ProducerIds:
    """Counts through a block that was reserved on disk before the first of it was used."""

    def __init__(self, disk: Disk) -> None:
        content = read_file(disk, _PATH)
        self._next: int = 0 if content is None else json.loads(bytes(content))["next"]
        replace_file(disk, _PATH, json.dumps({"next": self._next + _BLOCK}).encode())

    def next_id(self) -> int:
        """A producer id, 0 or above."""
        self._next += 1
        return self._next - 1
