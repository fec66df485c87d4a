"""A shard's log among the partitions that the broker holds."""

from __future__ import annotations

from typing import Final

from partage.broker.hosted import Hosted
from partage.broker.partition import Partition
from partage.log.damage import DamagedLog
from partage.log.disk import Disk
from partage.log.outcomes import Refusal, Slice
from partage.log.scanning import first_fault
from partage.store.shard_log import TOPIC
from partage.wire.types import Buffer

_EVERYTHING: Final = 1 << 62


class ShardStore:
    """One partition of ``__consumer_offsets``."""

    def __init__(self, hosted: Hosted, disk: Disk, index: int) -> None:
        self._hosted = hosted
        self._disk = disk
        self._index = index

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to load."""
        return self.partition().log.high_watermark == 0

    def partition(self) -> Partition:
        """The partition to append to."""
        partition = self._hosted.partition(TOPIC, self._index)
        assert partition is not None
        return partition

    def slices(self) -> list[Slice]:
        """Where the whole content is; on the loop."""
        log = self.partition().log
        if log.high_watermark == log.log_start_offset:
            return []
        slices = log.locate(log.log_start_offset, _EVERYTHING)
        assert not isinstance(slices, Refusal), slices.message
        return slices

    def read(self, slices: list[Slice]) -> list[Buffer]:
        """The content; in a thread. Raises `OSError`, and `DamagedLog` with the place."""
        return [self._read(part) for part in slices]

    def _read(self, part: Slice) -> Buffer:
        content = self._disk.read(part.path, part.position, part.length)
        if fault := first_fault(content):
            raise DamagedLog(part.path, part.position + fault.position, fault.reason)
        return content

    async def open_again(self) -> None:
        """Open the partition anew after a failure. Raises `OSError` and `DamagedLog`."""
        await self._hosted.reopen(TOPIC, self._index)
