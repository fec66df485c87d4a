"""The index of aborted transactions of a segment, in the format of Kafka's ``.txnindex`` files.

A transaction is in the index of the segment that holds its abort marker. A segment without such a
marker has no file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

from partage.log.producer_state import CompletedTransaction

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a producer.

    ``last_offset`` is the one of the marker. ``last_stable_offset`` was the log's one just after
    the marker: transactions with a later marker do not reach below it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def from_completed(cls, completed: CompletedTransaction) -> AbortedTransaction:
        """Return the entry of a transaction that was aborted."""
        producer_id, first_offset, last_offset, _, last_stable_offset = completed
        return cls(producer_id, first_offset, last_offset, last_stable_offset)


class AbortedIndex:
    """The aborted transactions of a segment, in order of their markers, as in the file."""

    def __init__(self) -> None:
        self._content = bytearray()

    def __len__(self) -> int:
        return len(self._content) // _ENTRY.size

    def __getitem__(self, number: int) -> AbortedTransaction:
        _, *fields = _ENTRY.unpack_from(self._content, number * _ENTRY.size)
        return AbortedTransaction(*fields)

    def add(self, transaction: AbortedTransaction) -> None:
        """Add the transaction of the latest abort marker."""
        self._content += _ENTRY.pack(_VERSION, *transaction)

    def collect(self, begin: int, end: int, found: list[AbortedTransaction]) -> bool:
        """Append the transactions that overlap a range of offsets to ``found``.

        Returns:
            True if no later marker can end a transaction in the range.
        """
        first = bisect_left(range(len(self)), begin, key=lambda at: self[at].last_offset)
        for number in range(first, len(self)):
            transaction = self[number]
            if transaction.first_offset < end:
                found.append(transaction)
            if transaction.last_stable_offset >= end:
                return True
        return False

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return bytes(self._content)

    @classmethod
    def decode(cls, content: bytes, base_offset: int) -> AbortedIndex | None:
        """Decode the file of the segment at ``base_offset``; None if it is implausible."""
        if len(content) % _ENTRY.size:
            return None
        index, before = cls(), base_offset - 1
        index._content += content
        for version, _, first_offset, last_offset, stable in _ENTRY.iter_unpack(content):
            if version != _VERSION or not 0 <= first_offset < last_offset or stable < 0:
                return None
            if last_offset <= before:
                return None
            before = last_offset
        return index
