"""Rules ``epoch-order`` and ``sequences``: each log has a producer's batches in their order.

- ``epoch-order``: In each log, the epochs of a producer's batches and markers never decrease. An
  older epoch is that of a fenced producer, or of a transaction that has ended (KIP-98).
- ``sequences``: The first batch of a producer in an epoch has the sequence 0, and each later one
  continues the one before. Otherwise a batch between them was lost, or one is stored twice.

Markers in the logs of groups count when they are durable. A former owner of a shard may report one
late, so the markers of one owner are compared with those of the same and of earlier owners only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    BatchAppended,
    History,
    LogOpened,
    OffsetsMarkerDurable,
    RuleViolationError,
)
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition

_SEQUENCE_MAX: Final = 2**31 - 1


class _Position(NamedTuple):
    """The state of a producer in a log after the batch at ``offset``."""

    offset: int
    epoch: int
    next_sequence: int


class ProducerOrderChecker:
    """Tracks the last epoch and sequence of each producer in each log."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._positions: dict[tuple[TopicPartition, int], list[_Position]] = {}
        # epoch of the shard, and that of the producer, by shard and producer id
        self._offset_markers: dict[tuple[int, int], tuple[int, int]] = {}
        history.subscribe(BatchAppended, self._on_batch)
        history.subscribe(LogOpened, self._on_opened)
        history.subscribe(OffsetsMarkerDurable, self._on_offsets_marker)

    def _on_batch(self, entry: BatchAppended) -> None:
        if entry.producer_id < 0:
            return
        positions = self._positions.setdefault((entry.partition, entry.producer_id), [])
        last = positions[-1] if positions else _Position(-1, entry.producer_epoch, 0)
        _compare(last.epoch, entry.producer_epoch, f"{entry}")
        expected = last.next_sequence if entry.producer_epoch == last.epoch else 0
        if entry.marker is None and entry.base_sequence >= 0:
            if entry.base_sequence != expected:
                raise RuleViolationError(
                    "sequences",
                    f"{entry} has the sequence {entry.base_sequence} instead of {expected}",
                )
            expected = (expected + len(entry.values)) & _SEQUENCE_MAX
        positions.append(_Position(entry.last_offset, entry.producer_epoch, expected))

    def _on_opened(self, entry: LogOpened) -> None:
        """Forget batches that were lost."""
        for (partition, _), positions in self._positions.items():
            while (
                partition == entry.partition
                and positions
                and positions[-1].offset >= entry.end_offset
            ):
                positions.pop()

    def _on_offsets_marker(self, entry: OffsetsMarkerDurable) -> None:
        writer = entry.shard, entry.producer_id
        shard_epoch, epoch = self._offset_markers.get(writer, (0, -1))
        if entry.shard_epoch < shard_epoch:
            return  # reported late, by a former owner of the shard
        _compare(epoch, entry.producer_epoch, f"{entry}")
        self._offset_markers[writer] = entry.shard_epoch, entry.producer_epoch


def _compare(last: int, epoch: int, what: str) -> None:
    if epoch < last:
        raise RuleViolationError("epoch-order", f"{what} follows the epoch {last} of its producer")
