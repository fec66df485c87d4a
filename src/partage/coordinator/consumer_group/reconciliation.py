"""The reconciliation of one member with its target assignment, as a pure function.

A member moves to its target in steps. It first stops reading the partitions that it must give up,
and confirms it by its next heartbeat. Only then are they free for other members, and the member
itself gets the partitions of its target that are free. So a partition never has two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from partage.coordinator.consumer_group.partitions import (
    EpochedPartitions,
    PartitionSet,
    TopicId,
)
from partage.coordinator.consumer_group.records import MemberAssignmentRecord, ReconciliationState

#: Returns the id of the member that a partition is assigned to, or None if it is free. A partition
#: that a member must still stop reading is not free.
PartitionHolder = Callable[[TopicId, int], str | None]


def reconcile(
    current: MemberAssignmentRecord,
    *,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    holder: PartitionHolder,
    has_subscription_changed: bool = False,
) -> MemberAssignmentRecord | None:
    """Return the next assignment of a member after a heartbeat.

    Args:
        current: The stored assignment.
        target_epoch: The epoch of the target assignment.
        target: The member's part of it, without topics to which it no longer subscribes.
        owned: The partitions that the member reported to own; None if it reported none.
        holder: Returns the holder of a partition.
        has_subscription_changed: True if the heartbeat changed the member's subscription.

    Returns:
        The assignment, which is ``current`` if nothing changes. None if the stored state is
        unknown and the member owns partitions: it must rejoin.
    """
    match current.state:
        case ReconciliationState.STABLE:
            if current.member_epoch == target_epoch and not has_subscription_changed:
                return current
            epoch = current.member_epoch
        case ReconciliationState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, current.pending_revocation):
                return current
            epoch = min(current.member_epoch + 1, target_epoch)
        case ReconciliationState.UNRELEASED_PARTITIONS:
            epoch = current.member_epoch
        case _:
            if owned is None or any(owned.values()):
                return None
            epoch = target_epoch
    following = _next_assignment(current, epoch, target_epoch, target, owned, holder)
    is_same = (
        following.member_epoch == current.member_epoch
        and following.state is current.state
        and following.assigned == current.assigned
        and following.pending_revocation == current.pending_revocation
    )
    return current if is_same else following


def _next_assignment(
    current: MemberAssignmentRecord,
    epoch: int,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    holder: PartitionHolder,
) -> MemberAssignmentRecord:
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = frozenset(target.get(topic_id, ()))
        for partition, assigned_epoch in epochs.items():
            part = kept if partition in wanted else revoked
            part.setdefault(topic_id, {})[partition] = assigned_epoch
    if revoked and _owns_any(owned, revoked):
        return msgspec.structs.replace(
            current,
            member_epoch=epoch,
            previous_member_epoch=current.member_epoch,
            state=ReconciliationState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )
    is_blocked = False
    assigned = {topic_id: dict(epochs) for topic_id, epochs in kept.items()}
    for topic_id, partitions in target.items():
        already = kept.get(topic_id, {})
        for partition in partitions:
            if partition in already:
                continue
            if holder(topic_id, partition) in (None, current.member_id):
                assigned.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_blocked = True
    return msgspec.structs.replace(
        current,
        member_epoch=target_epoch,
        previous_member_epoch=current.member_epoch,
        state=ReconciliationState.UNRELEASED_PARTITIONS
        if is_blocked
        else ReconciliationState.STABLE,
        assigned=assigned,
        pending_revocation={},
    )


def _owns_any(owned: PartitionSet | None, partitions: EpochedPartitions) -> bool:
    """True if the member still owns a partition; a member that reports nothing may own all."""
    if owned is None:
        return bool(partitions)
    return any(
        partition in epochs
        for topic_id, epochs in partitions.items()
        for partition in owned.get(topic_id, ())
    )


def is_subset(owned: PartitionSet | None, assigned: EpochedPartitions) -> bool:
    """True if the member reported what it owns, and all of it is assigned to it."""
    if owned is None:
        return False
    nothing: Collection[int] = ()
    return all(
        partition in assigned.get(topic_id, nothing)
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def to_partition_set(partitions: EpochedPartitions) -> PartitionSet:
    """Return the partitions without their epochs."""
    return {topic_id: tuple(sorted(epochs)) for topic_id, epochs in partitions.items()}
