"""Rule ``completion``: a transaction is complete only when all its partitions have the marker.

When the coordinator stores that a transaction is complete, no partition has records of its producer
without a marker. The partitions may be on several brokers. A reader with read_committed would wait
for such a marker forever, or the producer's next transaction would decide those records.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    CompletionAppended,
    CompletionDurable,
    History,
    RuleViolationError,
)
from partage.model.settings import GroupSettings


class CompletionsChecker:
    """Looks for open transactions of a producer when its transaction completes.

    A former coordinator may complete the transaction again, while the producer's next one is open.
    Its log rejects that, so only the completions that become durable count.
    """

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._logs = ledger.outputs.logs
        self._problems: dict[int, str] = {}  # by serial number of the completion
        history.subscribe(CompletionAppended, self._on_appended)
        history.subscribe(CompletionDurable, self._on_durable)

    def _on_appended(self, entry: CompletionAppended) -> None:
        unmarked = [
            str(partition)
            for partition, log in sorted(self._logs.items())
            if entry.producer_id in log.open
        ]
        if unmarked:
            name = f"{entry.transactional_id} (producer {entry.producer_id}, epoch {entry.epoch})"
            self._problems[entry.serial] = (
                f"the transaction of {name} is complete, but has no marker in {unmarked}"
            )

    def _on_durable(self, entry: CompletionDurable) -> None:
        if entry.serial in self._problems:
            raise RuleViolationError("completion", self._problems[entry.serial])
