"""Rule ``late-offsets``: no offset of a transaction is written after the marker that ended it.

Such an offset would belong to the producer's next transaction, or to none that ever ends. The
metadata of an offset is the tag of its transaction.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    OffsetsMarkerDurable,
    RecordsAppended,
    RuleViolationError,
    TransactionEnding,
)
from partage.lab.offset_log import LogChange, PendingOffset
from partage.model.settings import GroupSettings


class LateOffsetsChecker:
    """Numbers the ends of transactions and the markers after them, in order of the history."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._count = 0
        self._endings: dict[bytes, int] = {}  # by tag
        self._markers: dict[tuple[int, int], int] = {}  # by shard and producer id
        self._shards: dict[str, int] = {}  # by group
        history.subscribe(TransactionEnding, self._on_ending)
        history.subscribe(OffsetsMarkerDurable, self._on_marker)
        ledger.on_appended(self._on_appended)
        ledger.on_durable(self._on_durable)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _on_ending(self, entry: TransactionEnding) -> None:
        self._endings[entry.tag] = self._next()

    def _on_marker(self, entry: OffsetsMarkerDurable) -> None:
        self._markers[entry.shard, entry.producer_id] = self._next()

    def _on_appended(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, PendingOffset):
                self._shards[record.group_id] = entry.shard

    def _on_durable(self, record: LogChange) -> None:
        if not isinstance(record, PendingOffset) or record.offset is None:
            return
        ending = self._endings.get(record.offset.metadata.encode())
        marker = self._markers.get((self._shards[record.group_id], record.producer_id), 0)
        if ending is not None and marker > ending:
            raise RuleViolationError(
                "late-offsets", f"{record} was written after the marker of its transaction"
            )
