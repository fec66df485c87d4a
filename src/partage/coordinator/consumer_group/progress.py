"""The group events that show how a consumer group gets to a new target assignment.

They begin when the epoch of the group grows. The target follows, and then each step of a member:
what it must give up, and what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.embedded_protocol import TopicPartitions
from partage.coordinator.consumer_group.group import (
    Computation,
    ConsumerGroup,
    subscription_of,
)
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.partitions import (
    EpochedPartitions,
    PartitionSet,
    TopicId,
)
from partage.coordinator.consumer_group.records import ConsumerMemberRecord
from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import (
    SESSION_EXPIRED_REASON,
    GroupEvent,
    GroupEventType,
    MemberProgress,
    RebalanceCause,
)
from partage.coordinator.records import MemberRecord


class EpochCause(msgspec.Struct, frozen=True):
    """The cause of a new epoch, with the member that causes it, if one member does."""

    cause: RebalanceCause
    member_id: str | None = None


def cause_of_change(
    old: ConsumerMemberRecord | None,
    new: ConsumerMemberRecord,
    *,
    is_known_regex: bool,
    has_other_assignor: bool,
) -> EpochCause | None:
    """Return the cause of a new epoch if a new or changed member needs one, otherwise None.

    Args:
        old: The record of the member before the change; None for a new member.
        new: Its record now.
        is_known_regex: True if it has no regular expression, or one whose topics are known. A new
            expression raises the epoch only when its topics are known.
        has_other_assignor: True if the change changes the preferred assignor of the group.
    """
    topics, regex = ((), None) if old is None else subscription_of(old)
    has_other_topics = new.subscribed_topics != topics or (
        new.subscribed_regex != regex and is_known_regex
    )
    if not has_other_topics and not has_other_assignor:
        return None
    cause = RebalanceCause.SUBSCRIPTION_CHANGED
    if old is None:
        cause = RebalanceCause.MEMBER_JOINED
    elif not has_other_topics:
        cause = RebalanceCause.ASSIGNOR_CHANGED
    return EpochCause(cause, new.member_id)


def emit_session_expired(
    context: EventContext, group: ConsumerGroup, member_id: str, session_timeout_ms: int
) -> None:
    """Emit that the session of a member expired, with the session timeout of the group."""
    identity = group.member_record(member_id)
    assert identity is not None, f"member {member_id} is not stored"
    context.group_events.append(
        GroupEvent(
            at_ms=context.at_ms,
            group_id=group.id,
            event_type=GroupEventType.EXPIRED,
            generation=group.epoch,
            member_id=member_id,
            reason=SESSION_EXPIRED_REASON,
            cause=RebalanceCause.SESSION_EXPIRED,
            member=msgspec.structs.replace(identity, session_timeout_ms=session_timeout_ms),
            is_consumer_group=True,
        )
    )


def emit_epoch(context: EventContext, group: ConsumerGroup, because: EpochCause) -> None:
    """Emit that the epoch of the group has grown."""
    context.emit(group, GroupEventType.EPOCH_RAISED, because.member_id, cause=because.cause)


def emit_target(
    context: EventContext,
    group: ConsumerGroup,
    computation: Computation,
    changes: Sequence[tuple[PartitionSet, PartitionSet]],
) -> None:
    """Emit that the target assignment was stored.

    Args:
        context: Context of the current event.
        group: The group, with its new target.
        computation: The computation of the target.
        changes: For each member whose target changed, the target before and after the change.
    """
    member_id = requester(computation)
    context.group_events.append(
        GroupEvent(
            at_ms=context.at_ms,
            group_id=group.id,
            event_type=GroupEventType.TARGET_ASSIGNED,
            generation=group.epoch,
            member_id=member_id,
            member=None if member_id is None else group.member_record(member_id),
            is_consumer_group=True,
            target_epoch=group.assignment_epoch,
            assignor=computation.action.assignor,
            moved=_moved_count(changes),
        )
    )


def _moved_count(changes: Sequence[tuple[PartitionSet, PartitionSet]]) -> int:
    """Return the number of partitions that one member loses and another one gets."""
    lost: dict[TopicId, set[int]] = {}
    for before, after in changes:
        for topic_id, partitions in before.items():
            lost.setdefault(topic_id, set()).update(
                set(partitions).difference(after.get(topic_id, ()))
            )
    return sum(
        len(lost[topic_id].intersection(partitions).difference(before.get(topic_id, ())))
        for before, after in changes
        for topic_id, partitions in after.items()
        if topic_id in lost
    )


def requester(computation: Computation) -> str | None:
    """Return the member whose request ordered a computation and still waits for it."""
    return computation.parked[0].member_id if computation.parked else None


def emit_assignment(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember
) -> None:
    """Emit that the assignment of a member has changed."""
    is_reconciled = member.is_reconciled(group.assignment_epoch)
    progress = _progress(group, catalogue, member)
    context.group_events.append(
        GroupEvent(
            at_ms=context.at_ms,
            group_id=group.id,
            event_type=GroupEventType.RECONCILED if is_reconciled else GroupEventType.RECONCILING,
            generation=group.epoch,
            member_id=member.id,
            member=progress.member,
            is_consumer_group=True,
            target_epoch=group.assignment_epoch,
            progress=(progress,),
        )
    )


def snapshot_event(
    at_ms: int,
    group: ConsumerGroup,
    catalogue: Catalogue,
    event_type: GroupEventType,
    reason: str = "",
) -> GroupEvent:
    """Return an event with all members of the group and their partitions."""
    return GroupEvent(
        at_ms=at_ms,
        group_id=group.id,
        event_type=event_type,
        generation=group.epoch,
        reason=reason,
        is_consumer_group=True,
        target_epoch=group.assignment_epoch,
        progress=tuple(_progress(group, catalogue, member) for member in group.members.values()),
    )


def _progress(group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember) -> MemberProgress:
    identity: MemberRecord | None = group.member_record(member.id)
    assert identity is not None, f"member {member.id} is not stored"
    assignment = member.assignment
    return MemberProgress(
        member=identity,
        epoch=assignment.member_epoch,
        state=assignment.state.name.lower().replace("_", " "),
        assigned=_by_name(catalogue, assignment.assigned),
        revoking=_by_name(catalogue, assignment.pending_revocation),
    )


def _by_name(catalogue: Catalogue, partitions: EpochedPartitions) -> TopicPartitions:
    """Return partitions by topic name, not sorted; topics that do not exist are left out."""
    return {
        topic.name: tuple(epochs)
        for topic_id, epochs in partitions.items()
        if (topic := catalogue.topic_by_id(topic_id)) is not None
    }
