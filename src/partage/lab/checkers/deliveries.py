"""Rule ``deliveries``: a process delivers the records of a partition in order and without gaps.

While a process owns a partition, each delivered offset is one above the previous one. After it lost
the partition and got it again, it may start at any committed offset.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, OwnershipChanged, RecordsDelivered, RuleViolationError
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition


class DeliveriesChecker:
    """Tracks the next offset of each process in each partition that it owns."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._next: dict[tuple[str, TopicPartition], int] = {}
        self._held: dict[str, set[TopicPartition]] = {}
        history.subscribe(OwnershipChanged, self._hold)
        history.subscribe(RecordsDelivered, self._deliver)

    def _hold(self, entry: OwnershipChanged) -> None:
        held = set(entry.partitions)
        for gone in self._held.get(entry.process, set()) - held:
            self._next.pop((entry.process, gone), None)
        self._held[entry.process] = held

    def _deliver(self, entry: RecordsDelivered) -> None:
        if entry.partition not in self._held.get(entry.process, set()):
            raise RuleViolationError(
                "deliveries", f"{entry.process} delivered {entry.partition}, which it does not own"
            )
        place = (entry.process, entry.partition)
        for offset, _ in entry.records:
            if self._next.get(place, offset) != offset:
                raise RuleViolationError(
                    "deliveries", f"{place}: offset {offset} follows {self._next[place] - 1}"
                )
            self._next[place] = offset + 1
