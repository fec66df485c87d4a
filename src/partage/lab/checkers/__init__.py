"""Checkers: the rules that hold in every world, one module for each rule.

A checker sees only the history: messages on the wire, records written, synced and loaded, and
records delivered to users. It knows nothing about the state of coordinators or members, so it could
judge any other implementation. The first broken rule raises `RuleViolationError`.
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
    """Subscribe every checker to a history. Return the ledger that they share."""
    ledger = Ledger(history)
    for checker in CHECKERS:
        checker(history, ledger, settings)
    return ledger
