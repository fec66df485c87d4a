"""The heartbeat of a member that leaves its consumer group (KIP-848)."""

from __future__ import annotations

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.heartbeat import invalid_instance, session_timeout_ms
from partage.coordinator.consumer_group.member import STATIC_LEAVE_EPOCH, ConsumerMember
from partage.coordinator.consumer_group.membership import fence_members
from partage.coordinator.consumer_group.parked_requests import refuse_parked, unknown_member
from partage.coordinator.consumer_group.records import MemberAssignmentRecord
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import GroupEventType


def leave(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    event: ConsumerGroupHeartbeat,
) -> None:
    """Handle the heartbeat of a member that leaves: for good, or as a static member for a while."""
    if event.instance_id is not None:
        refused = invalid_instance(group, event.member_id, event.instance_id)
    elif event.member_id not in group.members:
        refused = unknown_member(group, event.member_id)
    else:
        refused = None
    if refused is not None:
        context.reply(event.reply_to, refused)
        return
    member = group.members[event.member_id]
    if event.instance_id is not None and event.member_epoch == STATIC_LEAVE_EPOCH:
        _leave_for_a_while(context, group, catalogue, member)
    else:
        context.emit(group, GroupEventType.LEFT, member.id)
        fence_members(context, group, catalogue, [member])
    context.reply(
        event.reply_to,
        ConsumerGroupHeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch),
    )


def _leave_for_a_while(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember
) -> None:
    """Keep the partitions of a static member until its session ends."""
    if member.epoch != STATIC_LEAVE_EPOCH:
        context.emit(group, GroupEventType.LEFT_FOR_A_WHILE, member.id)
    if refuse_parked(context, group, member):
        timeout_ms = session_timeout_ms(context, group, catalogue, member)
        context.arm_timer(member.session_timer, timeout_ms)
    before = member.assignment
    context.write(
        MemberAssignmentRecord(
            group_id=group.id,
            member_id=member.id,
            member_epoch=STATIC_LEAVE_EPOCH,
            previous_member_epoch=before.previous_member_epoch,
            state=before.state,
            assigned=before.assigned,
        )
    )
    member.awaits_request = False
    context.cancel_timer(member.rebalance_timer)
