"""Rule ``callbacks``: listener callbacks come in the order that KIP-429 specifies.

A partition is assigned only if the listener does not have it, and revoked or lost only if it does.
Revoked and lost are never called without partitions.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import CallbackDue, History, RuleViolationError
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition


class CallbacksChecker:
    """Tracks the partitions that each process's listener has."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._has: dict[str, set[TopicPartition]] = {}
        history.subscribe(CallbackDue, self._check)

    def _check(self, entry: CallbackDue) -> None:
        has = self._has.setdefault(entry.process, set())
        partitions = set(entry.partitions)
        if entry.call == "assigned":
            if has & partitions:
                raise RuleViolationError(
                    "callbacks", f"{entry.process}: assigned twice: {sorted(has & partitions)}"
                )
            has |= partitions
            return
        if not partitions:
            raise RuleViolationError(
                "callbacks", f"{entry.process}: {entry.call} is called without partitions"
            )
        if not partitions <= has:
            raise RuleViolationError(
                "callbacks",
                f"{entry.process}: {entry.call} without being assigned: {sorted(partitions - has)}",
            )
        has -= partitions
