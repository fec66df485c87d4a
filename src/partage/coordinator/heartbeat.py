"""Heartbeat: the most frequent request, so the shortest code path."""

from __future__ import annotations

from partage.coordinator.events import Heartbeat
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.replies import HeartbeatReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.model.errors import ErrorCode

_TABLE = RESPONSES[RequestCase.HEARTBEAT]
_REPLIES = {error: HeartbeatReply(error) for error in ErrorCode}
_ERRORS_OF_LIVING = {
    Response.ALIVE: ErrorCode.NONE,
    Response.ALIVE_REBALANCING: ErrorCode.REBALANCE_IN_PROGRESS,
}
#: The reply to a member that stays alive, by the state of its group.
_ALIVE = {
    state: _REPLIES[_ERRORS_OF_LIVING[answer]]
    for state, answer in _TABLE.items()
    if answer in _ERRORS_OF_LIVING
}


def heartbeat_error(error: ErrorCode) -> HeartbeatReply:
    """Return a reply with ``error``."""
    return _REPLIES[error]


def heartbeat(group: Group, event: Heartbeat) -> tuple[HeartbeatReply, Member | None]:
    """Return the reply to a Heartbeat for an existing group, and the member that it keeps alive.

    Nothing else depends on a Heartbeat, so it needs no context.
    """
    member = group.validate_member(event.member_id, event.instance_id)
    if not isinstance(member, Member):
        return _REPLIES[member], None
    if event.generation != group.record.generation:
        return _REPLIES[ErrorCode.ILLEGAL_GENERATION], None
    reply = _ALIVE.get(group.state)
    if reply is None:
        return _REPLIES[RESPONSE_ERRORS[_TABLE[group.state]]], None
    return reply, member
