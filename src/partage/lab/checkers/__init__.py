"""What must hold in every world: a file a rule, each fed by the history alone.

A checker knows what went over the wire, what was written, synced and loaded, and what consumers
handed to their users. It knows nothing of the coordinator's or a member's state, so it would judge
any other implementation as well. The first thing that cannot be raises `Violation`.
"""

from __future__ import annotations

from typing import Final

from partage.lab.checkers import (
    answers,
    callbacks,
    commits,
    deliveries,
    expiry,
    fencing,
    generations,
    instances,
    joins,
    owners,
    reads,
    records,
    shares,
    syncs,
    tenures,
    two_steps,
)
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History
from partage.model.settings import GroupSettings

__all__ = ["CHECKERS", "Ledger", "watch"]

CHECKERS: Final = (
    generations.Generations,
    shares.Shares,
    owners.Owners,
    syncs.Syncs,
    joins.Joins,
    tenures.Tenures,
    fencing.Fencing,
    instances.Instances,
    two_steps.TwoSteps,
    commits.Commits,
    expiry.Expiry,
    records.Records,
    reads.Reads,
    answers.Answers,
    deliveries.Deliveries,
    callbacks.Callbacks,
)


def watch(history: History, settings: GroupSettings) -> Ledger:
    """Have every checker listen to a history; the ledger that they share."""
    ledger = Ledger(history)
    for checker in CHECKERS:
        checker(history, ledger, settings)
    return ledger
