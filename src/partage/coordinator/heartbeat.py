"""Heartbeat: the most frequent request, so the shortest code path."""

from __future__ import annotations

from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Heartbeat
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.replies import HeartbeatReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.model.errors import ErrorCode

_TABLE = RESPONSES[RequestCase.HEARTBEAT]
_REPLIES = {error: HeartbeatReply(error) for error in ErrorCode}
_ALIVE = {
    Response.ALIVE: _REPLIES[ErrorCode.NONE],
    Response.ALIVE_REBALANCING: _REPLIES[ErrorCode.REBALANCE_IN_PROGRESS],
}


def heartbeat_error(error: ErrorCode) -> HeartbeatReply:
    """Return a reply with ``error``."""
    return _REPLIES[error]


def heartbeat(context: EventContext, group: Group, event: Heartbeat) -> None:
    """Handle a Heartbeat for an existing group."""
    member = group.validate_member(event.member_id, event.instance_id)
    if not isinstance(member, Member):
        context.reply(event.reply_to, _REPLIES[member])
        return
    if event.generation != group.record.generation:
        context.reply(event.reply_to, _REPLIES[ErrorCode.ILLEGAL_GENERATION])
        return
    answer = _TABLE[group.state]
    reply = _ALIVE.get(answer)
    if reply is None:
        context.reply(event.reply_to, _REPLIES[RESPONSE_ERRORS[answer]])
        return
    context.restart_session(member)
    context.reply(event.reply_to, reply)
