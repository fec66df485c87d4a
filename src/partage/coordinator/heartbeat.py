"""Heartbeat: the most frequent request, so the shortest code path."""

from __future__ import annotations

from partage.coordinator.answers import ANSWERS, ERRORS, Answer, Row
from partage.coordinator.events import Heartbeat
from partage.coordinator.group import Group
from partage.coordinator.replies import HeartbeatReply
from partage.coordinator.turn import Turn
from partage.model.errors import ErrorCode

_TABLE = ANSWERS[Row.HEARTBEAT]
_REPLIES = {error: HeartbeatReply(error) for error in ErrorCode}
_ALIVE = {
    Answer.ALIVE: _REPLIES[ErrorCode.NONE],
    Answer.ALIVE_REBALANCING: _REPLIES[ErrorCode.REBALANCE_IN_PROGRESS],
}


def refused(error: ErrorCode) -> HeartbeatReply:
    """Return a reply with ``error``."""
    return _REPLIES[error]


def heartbeat(turn: Turn, group: Group, event: Heartbeat) -> None:
    """Handle a Heartbeat for an existing group."""
    member = group.identify(event.member_id, event.instance_id)
    if isinstance(member, ErrorCode):
        turn.reply(event.reply_to, _REPLIES[member])
        return
    if event.generation != group.saved.generation:
        turn.reply(event.reply_to, _REPLIES[ErrorCode.ILLEGAL_GENERATION])
        return
    answer = _TABLE[group.state]
    reply = _ALIVE.get(answer)
    if reply is None:
        turn.reply(event.reply_to, _REPLIES[ERRORS[answer]])
        return
    turn.keep_alive(member)
    turn.reply(event.reply_to, reply)
