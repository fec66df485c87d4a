"""Checkers: the rules that hold in every world, one module for each rule.

A checker sees only the history: messages on the wire, records written, synced and loaded, and
records delivered to users. It knows nothing about the state of coordinators or members, so it could
judge any other implementation. The first broken rule raises `RuleViolationError`.
"""

from __future__ import annotations

from typing import Final

from partage.lab.checkers import (
    admissions,
    assignments,
    atomicity,
    callbacks,
    commits,
    compaction,
    completions,
    consumer_classic_members,
    consumer_commits,
    consumer_deliveries,
    consumer_epochs,
    consumer_members,
    consumer_ownership,
    consumer_requests,
    consumer_sessions,
    consumer_steps,
    cooperative_handover,
    coordinator_fence,
    deliveries,
    generation_fence,
    generations,
    group_migrations,
    instance_ids,
    isolation,
    join_responses,
    late_offsets,
    leases,
    partition_owners,
    producer_fence,
    producer_order,
    prompt_responses,
    reads,
    records,
    responses,
    session_expiry,
    shard_ownership,
    stable_offsets,
    sync_responses,
    transaction_timeouts,
)
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History
from partage.model.settings import GroupSettings

__all__ = [
    "CHECKERS",
    "CONSUMER_GROUP_CHECKERS",
    "TRANSACTION_CHECKERS",
    "Ledger",
    "attach_checkers",
    "attach_coordinator_checkers",
]

#: The rules about group coordinators. They need requests, responses and records of shards only.
COORDINATOR_CHECKERS: Final = (
    generations.GenerationsChecker,
    assignments.AssignmentsChecker,
    sync_responses.SyncResponsesChecker,
    join_responses.JoinResponsesChecker,
    shard_ownership.ShardOwnershipChecker,
    leases.LeasesChecker,
    generation_fence.GenerationFenceChecker,
    instance_ids.InstanceIdsChecker,
    cooperative_handover.CooperativeHandoverChecker,
    commits.CommitsChecker,
    session_expiry.SessionExpiryChecker,
    responses.ResponsesChecker,
)
CHECKERS: Final = (
    *COORDINATOR_CHECKERS,
    partition_owners.PartitionOwnersChecker,
    records.RecordsChecker,
    reads.ReadsChecker,
    deliveries.DeliveriesChecker,
    callbacks.CallbacksChecker,
    compaction.CompactionChecker,
    prompt_responses.PromptResponsesChecker,
)
#: The rules about transactional producers, for worlds that have some.
TRANSACTION_CHECKERS: Final = (
    isolation.IsolationChecker,
    producer_fence.ProducerFenceChecker,
    producer_order.ProducerOrderChecker,
    coordinator_fence.CoordinatorFenceChecker,
    completions.CompletionsChecker,
    admissions.AdmissionsChecker,
    atomicity.AtomicityChecker,
    stable_offsets.StableOffsetsChecker,
    late_offsets.LateOffsetsChecker,
    transaction_timeouts.TransactionTimeoutsChecker,
)

#: The rules about the coordinator of the group with the consumer protocol.
CONSUMER_COORDINATOR_CHECKERS: Final = (
    consumer_epochs.ConsumerEpochsChecker,
    consumer_ownership.ConsumerOwnershipChecker,
    consumer_commits.ConsumerCommitsChecker,
    consumer_sessions.ConsumerSessionsChecker,
    group_migrations.GroupMigrationsChecker,
    consumer_steps.ConsumerStepsChecker,
    consumer_classic_members.ConsumerClassicMembersChecker,
)
#: The rules about the group with the consumer protocol, for worlds that have one.
CONSUMER_GROUP_CHECKERS: Final = (
    *CONSUMER_COORDINATOR_CHECKERS,
    consumer_deliveries.ConsumerDeliveriesChecker,
    consumer_requests.ConsumerRequestsChecker,
    consumer_members.ConsumerMembersChecker,
)


def attach_checkers(
    history: History,
    settings: GroupSettings,
    *,
    has_transactions: bool = False,
    has_consumer_group: bool = False,
) -> Ledger:
    """Subscribe every checker to a history. Return the ledger that they share."""
    ledger = Ledger(history)
    for checker in CHECKERS + (TRANSACTION_CHECKERS if has_transactions else ()):
        checker(history, ledger, settings)
    if has_consumer_group:
        states = ConsumerGroupStates(history, ledger)
        for group_checker in CONSUMER_GROUP_CHECKERS:
            group_checker(history, states, settings)
    return ledger


def attach_coordinator_checkers(
    history: History, settings: GroupSettings, *, has_consumer_group: bool
) -> None:
    """Subscribe the checkers that judge coordinators, whatever the shells of their members are."""
    ledger = Ledger(history)
    for checker in COORDINATOR_CHECKERS:
        checker(history, ledger, settings)
    if has_consumer_group:
        states = ConsumerGroupStates(history, ledger)
        for group_checker in CONSUMER_COORDINATOR_CHECKERS:
            group_checker(history, states, settings)
