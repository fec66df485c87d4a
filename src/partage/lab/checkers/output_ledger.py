"""The known state of the logs that transactional producers write, decoded from stored batches.

It follows the log order: a marker decides the records of its producer before it (KIP-98). It knows
nothing about the producer state and the indexes of the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from partage.lab.history import (
    BatchAppended,
    History,
    LogCompacted,
    LogOpened,
    TransactionEnded,
    TransactionEnding,
)
from partage.model.topic_partition import TopicPartition


class LoggedBatch:
    """A batch in a log. ``is_committed`` is None while its transaction is open."""

    __slots__ = ("entry", "is_committed")

    def __init__(self, entry: BatchAppended) -> None:
        self.entry = entry
        self.is_committed: bool | None = None if entry.is_transactional else True

    def records(self, begin: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the offsets and values of its records from an offset on; a marker has none."""
        for offset, value in enumerate(self.entry.values, start=self.entry.base_offset):
            if offset >= begin:
                yield offset, value


class OutputLog:
    """The batches of one partition."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.is_compacted = False
        self.open: dict[int, list[LoggedBatch]] = {}  # by producer, in order of the log

    def append(self, entry: BatchAppended) -> None:
        """Append a batch; a marker ends the transaction of its producer."""
        batch = LoggedBatch(entry)
        self.batches.append(batch)
        if entry.marker is not None:
            batch.is_committed = entry.marker
            for decided in self.open.pop(entry.producer_id, ()):
                decided.is_committed = entry.marker
        elif entry.is_transactional:
            self.open.setdefault(entry.producer_id, []).append(batch)

    def may_be_removed(self, batch: LoggedBatch) -> bool:
        """Return True if compaction may have removed a batch, or all its records.

        In a compacted log of transactional producers, each record has a separate key.
        """
        return self.is_compacted and (batch.entry.marker is not None or batch.is_committed is False)

    def truncate(self, end_offset: int) -> None:
        """Forget batches that were lost, and decisions whose markers were lost."""
        if not self.batches or self.batches[-1].entry.base_offset < end_offset:
            return
        kept = [b.entry for b in self.batches if b.entry.base_offset < end_offset]
        self.batches, self.open = [], {}
        for entry in kept:
            self.append(entry)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest open transaction; None if there is none."""
        firsts = [batches[0].entry.base_offset for batches in self.open.values()]
        return min(firsts, default=None)

    def between(self, begin: int, end: int) -> Iterator[LoggedBatch]:
        """Yield the batches with offsets in a range."""
        for batch in self.batches if begin < end else ():
            if batch.entry.last_offset >= begin and batch.entry.base_offset < end:
                yield batch


class OutputLedger:
    """The logs, and what the producers know about their transactions, by tag."""

    def __init__(self, history: History) -> None:
        self.logs: dict[TopicPartition, OutputLog] = defaultdict(OutputLog)
        self.endings: dict[bytes, TransactionEnding] = {}
        self.ended: dict[bytes, TransactionEnded] = {}
        history.subscribe(BatchAppended, self._append)
        history.subscribe(LogOpened, self._open)
        history.subscribe(LogCompacted, self._compact)
        history.subscribe(TransactionEnding, self._on_ending)
        history.subscribe(TransactionEnded, self._on_ended)

    def _append(self, entry: BatchAppended) -> None:
        self.logs[entry.partition].append(entry)

    def _open(self, entry: LogOpened) -> None:
        self.logs[entry.partition].truncate(entry.end_offset)

    def _compact(self, entry: LogCompacted) -> None:
        self.logs[entry.partition].is_compacted = True

    def _on_ending(self, entry: TransactionEnding) -> None:
        self.endings[entry.tag] = entry

    def _on_ended(self, entry: TransactionEnded) -> None:
        self.ended[entry.tag] = entry


def tag_of(value: bytes) -> bytes:
    """Return the tag of the transaction that wrote a record."""
    return value.split(b"/", 1)[0]


def number_of(value: bytes) -> int:
    """Return the number of a record among those of its transaction in its partition."""
    return int(value.split(b"/")[2])


def source_of(value: bytes) -> int | None:
    """Return the offset of the input record that a record was made from, or None."""
    source = value.split(b"/")[3]
    return int(source) if source else None
