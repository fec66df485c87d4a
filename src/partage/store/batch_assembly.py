"""Record batches of a shard's log: a batch ends between two events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

RecordT = TypeVar("RecordT")
#: The keys and values of the records of a batch.
BatchContent = list[tuple[bytes, bytes | None]]

#: Maximum bytes of the records of one event in a batch, below ``max.message.bytes``. Deletions of
#: very many offsets exceed it, and each record of these has its effect alone. A group whose
#: conversion exceeds it would have to have several times the 16 MiB of metadata that a group may
#: have; such a conversion is not atomic.
_EVENT_BYTES_MAX: Final = 96 * 1024 * 1024
#: Bytes of a record in a batch besides key and value, at most.
RECORD_OVERHEAD_BYTES: Final = 24


def mark_event_ends(
    records: Iterable[RecordT], event_ends: Sequence[int] | None
) -> Iterator[tuple[RecordT, bool]]:
    """Yield each record, with True for the last one of its event.

    Args:
        records: The records.
        event_ends: The number of records up to the end of each event; None if each record is an
            event.
    """
    ends = None if event_ends is None else frozenset(event_ends)
    for count, record in enumerate(records, 1):
        yield record, ends is None or count in ends


class BatchSplitter:
    """Decides where the batches end.

    A batch ends with the event that reaches the target size.

    Args:
        batch_bytes: The target size.
        event_bytes_max: A batch of this size ends even within an event.
    """

    def __init__(self, batch_bytes: int, event_bytes_max: int = _EVENT_BYTES_MAX) -> None:
        self._batch_bytes = batch_bytes
        self._event_bytes_max = event_bytes_max
        self._gathered: BatchContent = []
        self._size = 0

    def add(self, key: bytes, value: bytes | None, *, ends_event: bool) -> list[BatchContent]:
        """Add a record, and return the contents of the batches that end."""
        size = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        ended = self.finish() if self._size + size > self._event_bytes_max else []
        self._gathered.append((key, value))
        self._size += size
        if ends_event and self._size >= self._batch_bytes:
            ended += self.finish()
        return ended

    def finish(self) -> list[BatchContent]:
        """Return the content of the last batch, if there is any."""
        if not self._gathered:
            return []
        gathered, self._gathered, self._size = self._gathered, [], 0
        return [gathered]
