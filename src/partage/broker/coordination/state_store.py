"""Where a shard's records go: the interface, and a log among the partitions of this broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.coordinator.records import Record
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.recovery.segment_scan import find_batch_fault
from partage.log.results import Refusal, Slice
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC, encode_records
from partage.wire.types import Buffer

_UNLIMITED_BYTES: Final = 1 << 62


#: Called once the records are durable, or with the error that kept them from it.
StoredCallback = Callable[[ErrorCode], None]
#: Gives the content, as record batches; called in a thread.
ContentReader = Callable[[], Sequence[Buffer]]


class StateStore(Protocol):
    """What a shard's host needs of where the shard's state lives."""

    @property
    def epoch(self) -> int | None:
        """Counts the tenures of the shard, of all brokers; None where there is only one broker."""

    def append(self, records: list[Record], at_ms: int, stored: StoredCallback) -> None:
        """Append records, in order. Raises `OSError`; then ``stored`` is not called, and the first
        of them may be there all the same.
        """

    async def prepare_read(self) -> ContentReader:
        """Find the content; reading it raises `OSError`, `DamagedLogError` and `Malformed`, as this."""

    async def reopen(self) -> None:
        """Begin anew after a failure. Raises `OSError` and `DamagedLogError`."""

    def may_answer(self) -> bool:
        """Whether nobody else can have the shard by now."""


class LocalStore:
    """One partition of ``__consumer_offsets``."""

    epoch: Final = None

    def __init__(self, hosted: LogManager, disk: Disk, index: int) -> None:
        self._log_manager = hosted
        self._disk = disk
        self._index = index

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to load."""
        return self.partition().log.high_watermark == 0

    def partition(self) -> Partition:
        """The partition to append to."""
        partition = self._log_manager.partition(TOPIC, self._index)
        assert partition is not None
        return partition

    def append(self, records: list[Record], at_ms: int, stored: StoredCallback) -> None:
        """Append the records as batches; they are durable when the last one is."""
        batches = encode_records(records, at_ms)
        partition = self.partition()
        for position, batch in enumerate(batches, start=1):
            is_last = position == len(batches)
            outcome = partition.append(
                batch, stored if is_last else _ignore_result, at_ms=at_ms, from_client=False
            )
            if isinstance(outcome, Refusal):
                raise OSError(f"the log refused a record: {outcome.message}")

    @staticmethod
    def may_answer() -> bool:
        """Nobody else can have it: the directory is locked."""
        return True

    async def prepare_read(self) -> ContentReader:
        """Find the whole content; on the loop."""
        slices = self.slices()
        return lambda: self.read(slices)

    def slices(self) -> list[Slice]:
        """Where the whole content is; on the loop."""
        log = self.partition().log
        if log.high_watermark == log.log_start_offset:
            return []
        slices = log.locate(log.log_start_offset, _UNLIMITED_BYTES)
        assert not isinstance(slices, Refusal), slices.message
        return slices

    def read(self, slices: list[Slice]) -> list[Buffer]:
        """The content; in a thread. Raises `OSError`, and `DamagedLogError` with the place."""
        return [self._read(part) for part in slices]

    def _read(self, part: Slice) -> Buffer:
        content = self._disk.read(part.path, part.position, part.length)
        if fault := find_batch_fault(content):
            raise DamagedLogError(part.path, part.position + fault.position, fault.reason)
        return content

    async def reopen(self) -> None:
        """Open the partition anew after a failure. Raises `OSError` and `DamagedLogError`."""
        await self._log_manager.reopen(TOPIC, self._index)


def _ignore_result(error: ErrorCode) -> None:
    """A batch whose successor's outcome says all."""
