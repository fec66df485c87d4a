"""LeaveGroup: members leave, or an administrator removes them."""

from __future__ import annotations

from partage.coordinator import rebalance
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Leave, LeavingMember
from partage.coordinator.group import Group
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.coordinator.replies import LeaveReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase
from partage.model.errors import ErrorCode


def leave(context: EventContext, group: Group, event: Leave) -> None:
    """Handle a Leave for an existing group; the reply has one error for each member."""
    gone: list[str] = []
    errors = tuple(_leave_one(context, group, leaver, gone) for leaver in event.members)
    context.reply(event.reply_to, LeaveReply(errors=errors))
    if gone:
        reason = f"{', '.join(gone)} left"
        rebalance.on_member_departed(context, group, RebalanceCause.MEMBER_LEFT, reason, gone[0])
    else:  # the other members may have waited for a pending one
        rebalance.maybe_complete_join(context, group)


def _leave_one(
    context: EventContext, group: Group, leaver: LeavingMember, gone: list[str]
) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member_id = group.static_members.get(leaver.instance_id, "")
    elif member_id in group.pending_members:
        rebalance.remove_pending_member(context, group, member_id)
        return ErrorCode.NONE
    member = group.validate_member(member_id, leaver.instance_id)
    if isinstance(member, ErrorCode):
        return member
    refused = RESPONSE_ERRORS.get(RESPONSES[RequestCase.LEAVE][group.state])
    if refused is not None:
        return refused
    rebalance.remove_member(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    gone.append(member_id)
    context.emit(group, GroupEventType.LEFT, member_id, leaver.reason or "", member=member)
    return ErrorCode.NONE
