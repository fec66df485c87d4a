"""LeaveGroup: members leave, or an administrator removes them."""

from __future__ import annotations

from partage.coordinator import rebalance
from partage.coordinator.answers import ANSWERS, ERRORS, Row
from partage.coordinator.events import Leave, Leaver
from partage.coordinator.group import Group
from partage.coordinator.outcome import Cause, Happening
from partage.coordinator.replies import LeaveReply
from partage.coordinator.turn import Turn
from partage.model.errors import ErrorCode


def leave(turn: Turn, group: Group, event: Leave) -> None:
    """Handle a Leave for an existing group; the reply has one error for each member."""
    gone: list[str] = []
    errors = tuple(_leave_one(turn, group, leaver, gone) for leaver in event.leavers)
    turn.reply(event.reply_to, LeaveReply(errors=errors))
    if gone:
        reason = f"{', '.join(gone)} left"
        rebalance.after_departure(turn, group, Cause.MEMBER_LEFT, reason, gone[0])
    else:  # the other members may have waited for a pending one
        rebalance.end_join_if_complete(turn, group)


def _leave_one(turn: Turn, group: Group, leaver: Leaver, gone: list[str]) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member_id = group.static.get(leaver.instance_id, "")
    elif member_id in group.pending:
        rebalance.forget_pending(turn, group, member_id)
        return ErrorCode.NONE
    member = group.identify(member_id, leaver.instance_id)
    if isinstance(member, ErrorCode):
        return member
    refused = ERRORS.get(ANSWERS[Row.LEAVE][group.state])
    if refused is not None:
        return refused
    rebalance.dismiss(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    gone.append(member_id)
    turn.notice(group, Happening.LEFT, member_id, leaver.reason or "", member=member)
    return ErrorCode.NONE
