"""The target assignment of a consumer group, once an assignor has computed it."""

from __future__ import annotations

from typing import Final

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.events import TargetComputed
from partage.coordinator.consumer_group.group import (
    Computation,
    ConsumerGroup,
    subscription_of,
)
from partage.coordinator.consumer_group.membership import bump_epoch
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.progress import EpochCause, emit_target
from partage.coordinator.consumer_group.records import MemberTargetRecord, TargetAssignmentRecord
from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import RebalanceCause

_NOTHING: Final[PartitionSet] = {}


def store_target(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    computation: Computation,
    event: TargetComputed,
) -> None:
    """Store the target that an assignor has computed.

    Members that joined meanwhile get their partitions from the next target; members that left are
    skipped.
    """
    assert event.target is not None, "a failed assignor computes no target"
    changes: list[tuple[PartitionSet, PartitionSet]] = []
    for member in group.members.values():
        computed_id = computation.computed_ids.get(member.id)
        target = _NOTHING if computed_id is None else event.target.get(computed_id, _NOTHING)
        if target is not member.target and target != member.target:
            changes.append((member.target, target))
            context.write(
                MemberTargetRecord(group_id=group.id, member_id=member.id, partitions=target)
            )
    context.write(
        TargetAssignmentRecord(
            group_id=group.id,
            assignment_epoch=event.group_epoch,
            assignment_ms=context.at_ms,
        )
    )
    emit_target(context, group, computation, changes)
    because = None
    if _lacks_member(group, catalogue, computation):
        because = EpochCause(RebalanceCause.MISSING_TARGET)
    bump_epoch(context, group, catalogue, because)


def _lacks_member(group: ConsumerGroup, catalogue: Catalogue, computation: Computation) -> bool:
    """True if a member with topics has no part in the newest target: a safeguard."""
    return group.epoch == group.assignment_epoch and any(
        member.id not in computation.computed_ids
        and group.topic_ids_of(subscription_of(member.subscription), catalogue)
        for member in group.members.values()
    )
