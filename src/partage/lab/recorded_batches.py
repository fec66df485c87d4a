"""Records the batches that are handed to the logs of transactional producers' topic.

It decodes the stored bytes itself, and knows nothing about the producer state of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from partage.lab import history
from partage.lab.offset_log import marker_coordinator_epoch, marker_type
from partage.model.topic_partition import TopicPartition
from partage.wire.records.batch import whole_batches
from partage.wire.records.decoder import decode_records


class _HistoryOwner(Protocol):
    @property
    def now_ms(self) -> int:
        """The virtual time, in ms since the epoch."""

    def append_history(self, entry: history.HistoryEntry) -> None:
        """Append an entry to the history."""


class LogRecorder:
    """Appends each stored batch, and each opening of a log, to the history of a world."""

    def __init__(self, world: _HistoryOwner) -> None:
        self._world = world

    def on_opened(self, partition: TopicPartition, end_offset: int) -> None:
        """Handle the opening of a log."""
        self._world.append_history(
            history.LogOpened(at_ms=self._world.now_ms, partition=partition, end_offset=end_offset)
        )

    def on_appended(self, partition: TopicPartition, content: bytes) -> None:
        """Handle stored batches."""
        for entry in decode_batches(partition, content, self._world.now_ms):
            self._world.append_history(entry)


def decode_batches(
    partition: TopicPartition, content: bytes, at_ms: int
) -> Iterator[history.BatchAppended]:
    """Yield the batches in the content of a log.

    Args:
        partition: The partition of the log.
        content: Stored batches; the last one may be cut off.
        at_ms: The time of the entries.
    """
    view = memoryview(content)
    for at, header in whole_batches(view):
        batch = view[at : at + header.size]
        marker: bool | None = None
        coordinator_epoch: int | None = None
        values: tuple[bytes, ...] = ()
        if header.is_control:
            marker = marker_type(batch) == 1
            coordinator_epoch = marker_coordinator_epoch(batch)
        else:
            records = decode_records(bytes(batch), header.base_offset)
            values = tuple(record[3] or b"" for record in records)
        yield history.BatchAppended(
            at_ms=at_ms,
            partition=partition,
            base_offset=header.base_offset,
            last_offset=header.base_offset + header.last_offset_delta,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            is_transactional=header.is_transactional,
            marker=marker,
            coordinator_epoch=coordinator_epoch,
            base_sequence=header.base_sequence,
            values=values,
        )
