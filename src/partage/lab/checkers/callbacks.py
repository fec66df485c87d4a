"""``callbacks``: a listener hears of what comes and goes in the order that KIP-429 has.

Nothing is assigned that it has already, nothing revoked or lost that it has not, and neither is
called for nothing.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import CallbackDue, History, Partition, RuleViolationError
from partage.model.settings import GroupSettings


class CallbacksChecker:
    """Remembers what each process's listener has."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._has: dict[str, set[Partition]] = {}
        history.subscribe(CallbackDue, self._tell)

    def _tell(self, entry: CallbackDue) -> None:
        has = self._has.setdefault(entry.process, set())
        told = set(entry.partitions)
        if entry.call == "assigned":
            if has & told:
                raise RuleViolationError(
                    "callbacks", f"{entry.process} is given again {sorted(has & told)}"
                )
            has |= told
            return
        if not told:
            raise RuleViolationError(
                "callbacks", f"{entry.process}: {entry.call} is called for nothing"
            )
        if not told <= has:
            raise RuleViolationError(
                "callbacks", f"{entry.process} has to give up {sorted(told - has)}"
            )
        has -= told
