"""Rule ``coordinator-fence``: a former transaction coordinator writes no marker.

In each log, the coordinator epochs of a producer's markers never decrease. A marker of a former
coordinator could end the producer's next transaction, which has the same epoch before KIP-890.
"""

from __future__ import annotations

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

_Writer = tuple[TopicPartition, int]  # a partition and a producer id


class CoordinatorFenceChecker:
    """Tracks the coordinator epoch of each producer's last marker."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        # offset and coordinator epoch of markers, in order of the log
        self._markers: dict[_Writer, list[tuple[int, int]]] = {}
        # epochs of the group shard and of the coordinator
        self._offset_markers: dict[tuple[int, int], tuple[int, int]] = {}
        history.subscribe(BatchAppended, self._on_batch)
        history.subscribe(LogOpened, self._on_opened)
        history.subscribe(OffsetsMarkerDurable, self._on_offsets_marker)

    def _on_batch(self, entry: BatchAppended) -> None:
        if entry.coordinator_epoch is None:
            return
        markers = self._markers.setdefault((entry.partition, entry.producer_id), [])
        if markers:
            _compare(markers[-1][1], entry.coordinator_epoch, f"{entry}")
        markers.append((entry.base_offset, entry.coordinator_epoch))

    def _on_opened(self, entry: LogOpened) -> None:
        """Forget markers that were lost."""
        for (partition, _), markers in self._markers.items():
            while partition == entry.partition and markers and markers[-1][0] >= entry.end_offset:
                markers.pop()

    def _on_offsets_marker(self, entry: OffsetsMarkerDurable) -> None:
        writer = entry.shard, entry.producer_id
        shard_epoch, epoch = self._offset_markers.get(writer, (0, -1))
        if entry.shard_epoch < shard_epoch:
            return  # reported late, by a former owner of the shard
        _compare(epoch, entry.coordinator_epoch, f"{entry}")
        self._offset_markers[writer] = entry.shard_epoch, entry.coordinator_epoch


def _compare(last: int, epoch: int, what: str) -> None:
    if epoch < last:
        raise RuleViolationError(
            "coordinator-fence", f"{what} follows a marker with coordinator epoch {last}"
        )
