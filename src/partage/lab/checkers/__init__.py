"""What must hold in every world: a file a rule, each fed by the history alone.

A checker knows what went over the wire, what was written, synced and loaded, and what consumers
handed to their users. It knows nothing of the coordinator's or a member's state, so it would judge
any other implementation as well. The first thing that cannot be raises `Violation`.
"""

from __future__ import annotations

from typing import Final

from partage.lab.checkers import (
    assignments,
    callbacks,
    commits,
    cooperative_handover,
    deliveries,
    generation_fence,
    generations,
    instance_ids,
    join_responses,
    partition_owners,
    reads,
    records,
    responses,
    session_expiry,
    shard_ownership,
    sync_responses,
)
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History
from partage.model.settings import GroupSettings

__all__ = ["CHECKERS", "Ledger", "attach_checkers"]

CHECKERS: Final = (
    generations.GenerationsChecker,
    assignments.AssignmentsChecker,
    partition_owners.PartitionOwnersChecker,
    sync_responses.SyncResponsesChecker,
    join_responses.JoinResponsesChecker,
    shard_ownership.ShardOwnershipChecker,
    generation_fence.GenerationFenceChecker,
    instance_ids.InstanceIdsChecker,
    cooperative_handover.CooperativeHandoverChecker,
    commits.CommitsChecker,
    session_expiry.SessionExpiryChecker,
    records.RecordsChecker,
    reads.ReadsChecker,
    responses.ResponsesChecker,
    deliveries.DeliveriesChecker,
    callbacks.CallbacksChecker,
)


def attach_checkers(history: History, settings: GroupSettings) -> Ledger:
    """Have every checker listen to a history; the ledger that they share."""
    ledger = Ledger(history)
    for checker in CHECKERS:
        checker(history, ledger, settings)
    return ledger
