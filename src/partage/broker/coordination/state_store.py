"""Stores of shard state: the interface, and the implementation in a local partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.producer_state import ProducerStateManager
from partage.log.recovery.segment_scan import find_batch_fault
from partage.log.results import Refusal, Slice
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC, encode_records
from partage.wire.types import Buffer

_UNLIMITED_BYTES: Final = 1 << 62


#: Called with NONE once the records are durable, or with the error.
StoredCallback = Callable[[ErrorCode], None]
#: Returns the content as record batches; called in a thread.
ContentReader = Callable[[], Sequence[Buffer]]


class RecordEncoder(Protocol):
    """A function that encodes records as batches, such as `encode_records`."""

    def __call__(
        self,
        records: Iterable[Any],
        at_ms: int,
        batch_bytes: int = ...,
        event_ends: Sequence[int] | None = ...,
    ) -> list[bytes]:
        """Return the batches."""


class StateStore(Protocol):
    """The log of a shard, as its host uses it."""

    @property
    def epoch(self) -> int | None:
        """Number of the current ownership of the shard, across all brokers; None for a single
        broker.
        """

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records in order.

        A crash keeps all records of an event or none.

        Args:
            records: the records.
            at_ms: their timestamp.
            stored: called once all are durable.
            event_ends: the number of records up to the end of each event.

        Raises:
            OSError: the append failed. ``stored`` is not called, but some of the first events may
                be stored.
        """

    async def prepare_read(self) -> ContentReader:
        """Return a function that reads the content.

        Raises:
            OSError: the log cannot be read (also raised by the returned function, like the others).
            DamagedLogError: the log is damaged.
            MalformedError: the content cannot be decoded.
        """

    async def reopen(self) -> None:
        """Open the log again after a failure.

        Raises:
            OSError: the log cannot be opened.
            DamagedLogError: the log is damaged.
        """

    def may_answer(self) -> bool:
        """True if no other broker can own the shard now."""


class LocalStore:
    """A local partition of an internal topic.

    Args:
        log_manager: the broker's partitions.
        disk: the data directory.
        index: the partition.
        topic: its topic.
        encode: returns records as batches.
    """

    epoch: Final = None

    def __init__(
        self,
        log_manager: LogManager,
        disk: Disk,
        index: int,
        topic: str = TOPIC,
        encode: RecordEncoder = encode_records,
    ) -> None:
        self._log_manager = log_manager
        self._disk = disk
        self._index = index
        self._topic = topic
        self._encode = encode

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to load."""
        return self.partition().log.high_watermark == 0

    def partition(self) -> Partition:
        """Return the partition."""
        partition = self._log_manager.partition(self._topic, self._index)
        assert partition is not None
        return partition

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self.partition().log.producer_state

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append the records as batches; they are durable when the last batch is."""
        batches = self._encode(records, at_ms, event_ends=event_ends)
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
        """True: the data directory is locked."""
        return True

    async def prepare_read(self) -> ContentReader:
        """Return a function that reads the content; call this on the loop."""
        slices = self.slices()
        return lambda: self.read(slices)

    def slices(self) -> list[Slice]:
        """Return the location of the content; call this on the loop."""
        log = self.partition().log
        if log.high_watermark == log.log_start_offset:
            return []
        slices = log.locate(log.log_start_offset, _UNLIMITED_BYTES)
        assert not isinstance(slices, Refusal), slices.message
        return slices

    def read(self, slices: list[Slice]) -> list[Buffer]:
        """Read the content; call this in a thread.

        Raises:
            OSError: the log cannot be read.
            DamagedLogError: the log is damaged; the error has file and position.
        """
        return [self._read(part) for part in slices]

    def _read(self, part: Slice) -> Buffer:
        content = self._disk.read(part.path, part.position, part.length)
        if fault := find_batch_fault(content):
            raise DamagedLogError(part.path, part.position + fault.position, fault.reason)
        return content

    async def reopen(self) -> None:
        """Open the partition again after a failure.

        Raises:
            OSError: the log cannot be opened.
            DamagedLogError: the log is damaged.
        """
        await self._log_manager.reopen(self._topic, self._index)


def _ignore_result(error: ErrorCode) -> None:
    """Ignore the result of a batch: the last batch reports for all."""
