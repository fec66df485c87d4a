"""The requests to consumer groups, for any state of the group's id."""

from __future__ import annotations

from partage.coordinator.admin import remove_group
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.description import describe
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
)
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.heartbeat import heartbeat, session_timeout_ms
from partage.coordinator.consumer_group.leave import leave
from partage.coordinator.consumer_group.membership import bump_epoch, fence_members
from partage.coordinator.consumer_group.progress import EpochCause, emit_session_expired
from partage.coordinator.consumer_group.replies import (
    ConsumerGroupHeartbeatReply,
    DescribeConsumerGroupReply,
)
from partage.coordinator.consumer_group.upgrade import upgrade
from partage.coordinator.consumer_group.validation import heartbeat_error, invalid_heartbeat
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Leave, LeavingMember
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.coordinator.replies import LeaveReply
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode


def handle_heartbeat(
    context: EventContext, catalogue: Catalogue, event: ConsumerGroupHeartbeat
) -> None:
    """Handle any ConsumerGroupHeartbeat: validate it, and find or create its group."""
    refused = invalid_heartbeat(event, context.settings.consumer)
    if refused is not None:
        context.reply(event.reply_to, refused)
        return
    if catalogue.topics is None:
        message = "The topics are not loaded yet."
        context.reply(
            event.reply_to, heartbeat_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        )
        return
    group = catalogue.groups.get(event.group_id)
    if isinstance(group, ConsumerGroup):
        if event.member_epoch < 0:
            leave(context, group, catalogue, event)
        else:
            heartbeat(context, group, catalogue, event)
        return
    if event.member_epoch != 0:
        context.reply(event.reply_to, _no_group(group, event))
        return
    if isinstance(group, Group) and group.state is not GroupState.EMPTY:
        _upgrade_and_join(context, group, catalogue, event)
        return
    if group is not None:
        remove_group(
            context, group, "replaced by a consumer group", event_type=GroupEventType.UPGRADED
        )
    created = catalogue.groups[event.group_id] = ConsumerGroup(event.group_id)
    heartbeat(context, created, catalogue, event)


def _upgrade_and_join(
    context: EventContext, group: Group, catalogue: Catalogue, event: ConsumerGroupHeartbeat
) -> None:
    """Let a member join a classic group that is not Empty, which becomes a consumer group."""
    upgraded = upgrade(context, group, catalogue, event)
    if not isinstance(upgraded, ConsumerGroup):
        context.reply(event.reply_to, upgraded)
        return
    epoch = upgraded.epoch
    heartbeat(context, upgraded, catalogue, event)
    if group.state is not GroupState.STABLE and upgraded.epoch == epoch:
        # partitions of an assignment that no member has received belong to no member
        member_id = event.member_id or event.generated_member_id
        because = EpochCause(RebalanceCause.UPGRADED, member_id)
        bump_epoch(context, upgraded, catalogue, because)


def _no_group(
    group: GroupBase | None, event: ConsumerGroupHeartbeat
) -> ConsumerGroupHeartbeatReply:
    name = event.group_id
    if group is not None:
        message = f"Group {name} is not a consumer group."
    elif event.member_epoch < 0:
        message = f"Group {name} not found."
    else:
        message = f"Consumer group {name} not found."
    return heartbeat_error(ErrorCode.GROUP_ID_NOT_FOUND, message)


def handle_describe(
    context: EventContext,
    group: GroupBase | None,
    catalogue: Catalogue,
    event: DescribeConsumerGroup,
) -> None:
    """Handle a ConsumerGroupDescribe of one group."""
    if isinstance(group, ConsumerGroup):
        context.reply(event.reply_to, describe(group, catalogue, context.settings.consumer))
        return
    if not event.group_id:
        error, message = ErrorCode.INVALID_GROUP_ID, None
    elif group is None:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found."
    else:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        message = f"Group {event.group_id} is not a consumer group."
    context.reply(
        event.reply_to,
        DescribeConsumerGroupReply(error=error, error_message=message, group_id=event.group_id),
    )


def handle_leave_group(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: Leave
) -> None:
    """Handle a LeaveGroup of members with the classic protocol, or of an administrator, who can
    remove any member.
    """
    leaving: list[str] = []
    errors = tuple(_leaver_error(group, leaver, leaving) for leaver in event.members)
    for member_id in leaving:
        context.emit(group, GroupEventType.LEFT, member_id)
    if leaving:
        fence_members(context, group, catalogue, [group.members[each] for each in leaving])
    context.reply(event.reply_to, LeaveReply(errors=errors))


def _leaver_error(group: ConsumerGroup, leaver: LeavingMember, leaving: list[str]) -> ErrorCode:
    member_id = leaver.member_id
    if leaver.instance_id is not None:
        held_by = group.static_members.get(leaver.instance_id)
        if held_by is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member_id != held_by:
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = held_by
    if member_id not in group.members or member_id in leaving:
        return ErrorCode.UNKNOWN_MEMBER_ID
    leaving.append(member_id)
    return ErrorCode.NONE


# Timers.


def on_session_timeout(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member_id: str
) -> None:
    """Remove a member whose session expired."""
    cause = RebalanceCause.SESSION_EXPIRED
    timeout_ms = session_timeout_ms(context, group, catalogue, group.members[member_id])
    emit_session_expired(context, group, member_id, timeout_ms)
    fence_members(context, group, catalogue, [group.members[member_id]], cause)


def on_rebalance_timeout(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member_id: str
) -> None:
    """Remove a member that did not give up its partitions in time, or did not send its next
    JoinGroup or SyncGroup.
    """
    is_classic = group.members[member_id].is_classic
    cause = RebalanceCause.NOT_REJOINED if is_classic else RebalanceCause.NOT_REVOKED
    context.emit(group, GroupEventType.EXPIRED, member_id, cause, cause=cause)
    fence_members(context, group, catalogue, [group.members[member_id]], cause)


def resume(context: EventContext, group: ConsumerGroup, catalogue: Catalogue) -> None:
    """Restart the timers of all members after loading."""
    group.resume()
    for member in group.members.values():
        timeout_ms = session_timeout_ms(context, group, catalogue, member)
        context.arm_timer(member.session_timer, timeout_ms)
        if member.must_revoke:
            delay_ms = max(member.subscription.rebalance_timeout_ms, 0)
            context.arm_timer(member.rebalance_timer, delay_ms)
