"""The steps of a consumer group that several events share."""

from __future__ import annotations

from collections.abc import Sequence

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.downgrade import downgrade, may_downgrade
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.parked_requests import refuse_parked
from partage.coordinator.consumer_group.progress import EpochCause, emit_epoch
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerMemberTombstone,
    MemberAssignmentTombstone,
    MemberTargetTombstone,
    RegularExpressionTombstone,
    TargetAssignmentRecord,
)
from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import GroupEventType, RebalanceCause


def bump_epoch(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, because: EpochCause | None
) -> None:
    """Raise the epoch of the group if there is a cause, or if its topics or its config changed.

    These are the subscribed topics, and the assignor in the config of the group. Their hash is
    computed only if the epoch grows, or if the topics of the cluster or that assignor have changed.
    """
    settings = context.settings.consumer
    assignor = catalogue.assignor(group.id, settings)
    has_other_assignor = assignor != group.configured_assignor
    is_checked = group.metadata_version == catalogue.version and not has_other_assignor
    if because is None and is_checked:
        return
    metadata_hash = group.record.metadata_hash
    if catalogue.topics is not None:
        names = group.subscribed_topics()
        metadata_hash = catalogue.metadata_hash(names, assignor)
        group.metadata_version = catalogue.version
        group.configured_assignor = assignor
        if has_other_assignor:
            group.computation_backoff.reset()
    if because is None and metadata_hash == group.record.metadata_hash:
        return
    if because is None:
        cause = RebalanceCause.TOPICS_CHANGED
        if catalogue.differs_only_by_assignor(
            group.record.metadata_hash, names, group.id, settings
        ):
            cause = RebalanceCause.ASSIGNOR_CHANGED
        because = EpochCause(cause)
    context.write(
        ConsumerGroupRecord(group_id=group.id, epoch=group.epoch + 1, metadata_hash=metadata_hash)
    )
    emit_epoch(context, group, because)


def drop_unused_regexes(context: EventContext, group: ConsumerGroup) -> None:
    """Remove the regular expressions to which no member subscribes."""
    for regex in sorted(group.regexes.keys() - group.subscribed_regexes.keys()):
        context.write(RegularExpressionTombstone(group_id=group.id, regex=regex))


def remove_member(context: EventContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Remove a member with its timers; a request that waits gets UNKNOWN_MEMBER_ID."""
    refuse_parked(context, group, member)
    if group.computation is not None:
        group.computation.computed_ids.pop(member.id, None)
    context.write(MemberAssignmentTombstone(group_id=group.id, member_id=member.id))
    context.write(MemberTargetTombstone(group_id=group.id, member_id=member.id))
    context.write(ConsumerMemberTombstone(group_id=group.id, member_id=member.id))
    context.cancel_timer(member.session_timer)
    context.cancel_timer(member.rebalance_timer)


def fence_members(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    members: Sequence[ConsumerMember],
    cause: RebalanceCause = RebalanceCause.MEMBER_LEFT,
) -> None:
    """Remove members for good.

    If only members with the classic protocol remain, and the policy allows it, the group becomes a
    classic group.
    """
    if may_downgrade(context, group, members):
        reason = "the last member with the consumer protocol left"
        downgrade(context, group, catalogue, members, reason=reason)
    else:
        remove_members(context, group, catalogue, members, cause)


def remove_members(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    members: Sequence[ConsumerMember],
    cause: RebalanceCause = RebalanceCause.MEMBER_LEFT,
) -> None:
    """Remove members, and raise the epoch once.

    The target assignment of a group without members is empty, so it reaches the epoch at once.
    """
    for member in members:
        remove_member(context, group, member)
    drop_unused_regexes(context, group)
    member_id = members[0].id if len(members) == 1 else None
    bump_epoch(context, group, catalogue, EpochCause(cause, member_id))
    if group.is_empty:
        context.write(TargetAssignmentRecord(group_id=group.id, assignment_epoch=group.epoch))
        context.emit(group, GroupEventType.EMPTIED)
