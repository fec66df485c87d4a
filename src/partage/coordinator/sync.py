"""SyncGroup: the leader sends the assignment, and each member gets its part."""

from __future__ import annotations

from partage.coordinator import rebalance
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Sync
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.coordinator.replies import SyncReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.coordinator.states import GroupState
from partage.coordinator.timers import SyncTimer
from partage.model.errors import ErrorCode


def sync(context: EventContext, group: Group, event: Sync) -> None:
    """Handle a Sync for an existing group."""
    member = _identify(group, event)
    if isinstance(member, ErrorCode):
        context.reply(event.reply_to, SyncReply(error=member))
        return
    row = RequestCase.SYNC_LEADER if member.id == group.leader else RequestCase.SYNC_FOLLOWER
    match RESPONSES[row][group.state]:
        case Response.ASSIGN if event.assignment_error is not None:
            rebalance.park_sync(context, member, event.reply_to)
            _handle_assignment_error(context, group, event.assignment_error)
        case Response.ASSIGN:
            rebalance.park_sync(context, member, event.reply_to)
            _mark_synced(context, group, member)
            _assign(context, group, event.assignments)
        case Response.AWAIT:
            rebalance.park_sync(context, member, event.reply_to)
            _mark_synced(context, group, member)
        case Response.ASSIGNMENT:
            if member.id in group.pending_sync_members:
                context.emit(group, GroupEventType.SYNCED, member.id)
            _mark_synced(context, group, member)
            context.reply(event.reply_to, _assignment_reply(group, member))
            context.restart_session(member)
        case answer:
            context.reply(event.reply_to, SyncReply(error=RESPONSE_ERRORS[answer]))


def _identify(group: Group, event: Sync) -> Member | ErrorCode:
    member = group.validate_member(event.member_id, event.instance_id)
    if isinstance(member, ErrorCode):
        return member
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    said = ((event.protocol_type, group.protocol_type), (event.protocol, group.protocol))
    if any(None not in pair and pair[0] != pair[1] for pair in said):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return member


def _mark_synced(context: EventContext, group: Group, member: Member) -> None:
    if (
        group.pending_sync_members.pop(member.id, _ABSENT) is None
        and not group.pending_sync_members
    ):
        context.cancel_timer(SyncTimer(group.id))


_ABSENT = object()


def _assign(context: EventContext, group: Group, assignments: dict[str, bytes]) -> None:
    """Store the leader's assignment and reply to all parked Syncs.

    A member that the leader left out gets an empty assignment.
    """
    context.write(
        group.snapshot(
            at_ms=context.at_ms,
            generation=group.generation,
            protocol=group.protocol,
            awaiting_sync=False,
            assignments=assignments,
        )
    )
    group.transition_to(GroupState.STABLE)
    group.is_sync_resumed = False
    times_ms = tuple(
        None if m.sync_ticket is None else context.at_ms for m in group.members.values()
    )
    for member in group.members.values():
        rebalance.reply_to_sync(context, member, _assignment_reply(group, member))
    context.emit(group, GroupEventType.ASSIGNED, group.leader, times_ms=times_ms)


def _handle_assignment_error(context: EventContext, group: Group, why: str) -> None:
    """Reply to all parked Syncs with the leader's assignment error, and start a rebalance.

    The client-side assignment proposal asks for this ("Assignment Failure"). REBALANCE_IN_PROGRESS
    makes every client rejoin; the error text is in a tagged field.
    """
    rebalance.abort_sync(context, group, assignment_error=why)
    reason = f"leader {group.leader} could not assign: {why}"
    rebalance.start_rebalance(
        context, group, RebalanceCause.ASSIGNMENT_FAILED, reason, group.leader
    )


def _assignment_reply(group: Group, member: Member) -> SyncReply:
    return SyncReply(
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=group.assignments.get(member.id, b""),
    )
