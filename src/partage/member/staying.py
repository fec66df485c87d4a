"""Handlers of heartbeats, of the coordinator lookup, and of rejected commits."""

from __future__ import annotations

from partage.member.events import (
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    HeartbeatAnswered,
)
from partage.member.member import Member
from partage.member.outcome import SendHeartbeat
from partage.member.reactions import Reaction, Request, reaction
from partage.member.states import INSIDE, PARKED
from partage.member.turn import Turn

#: Reactions to a commit that require a new connection if a request is parked.
_NOT_WHILE_PARKED = (Reaction.LOSE_GENERATION, Reaction.LOSE_MEMBERSHIP, Reaction.FAIL)


def beat(member: Member, turn: Turn) -> None:
    """Send a heartbeat, unless the last one is unanswered."""
    link = member.link
    link.time_heartbeat(turn)
    if link.coordinator is None or link.heartbeat is not None:
        return
    serial = link.next_serial()
    link.heartbeat = serial, turn.at_ms
    turn.do(
        SendHeartbeat(
            serial=serial,
            generation=member.generation,
            member_id=member.member_id,
            instance_id=member.settings.instance_id,
        )
    )


def coordinator_found(member: Member, turn: Turn, event: CoordinatorFound) -> None:
    """Use the found coordinator, and send it a heartbeat if the member has a session."""
    if member.link.found(event.serial) and member.link.session_ends_ms is not None:
        beat(member, turn)


def coordinator_not_found(member: Member, turn: Turn, event: CoordinatorNotFound) -> None:
    """Back off after a failed lookup, or fail if the coordinator may not be looked up."""
    if event.serial != member.link.finding:
        return
    member.link.finding = None
    if event.error is not None and reaction(Request.FIND, event.error) is Reaction.FAIL:
        member.fail(turn, event.error, "the coordinator lookup was rejected")
    elif member.state in INSIDE:
        member.link.back_off(turn)


def coordinator_lost(member: Member, turn: Turn, event: CoordinatorLost) -> None:
    """Continue without the coordinator after its connection closed."""
    if event.serial == member.link.coordinator:
        member.link.lost()
        member.go_on_without_coordinator(turn)


def heartbeat_answered(member: Member, turn: Turn, event: HeartbeatAnswered) -> None:
    """Extend the session, or react to the error."""
    if member.link.heartbeat is None or event.serial != member.link.heartbeat[0]:
        return
    _, sent_ms = member.link.heartbeat
    member.link.heartbeat = None
    answer = reaction(Request.HEARTBEAT, event.error)
    if answer in (Reaction.GO_ON, Reaction.REBALANCE):
        member.link.healed()
        member.link.alive(turn, sent_ms)
        if member.link.is_lapsed:
            beat(member, turn)
    if answer is not Reaction.GO_ON:
        member.react(turn, answer, event, Request.HEARTBEAT)


def commit_answered(member: Member, turn: Turn, event: CommitAnswered) -> None:
    """React to a rejected commit, if it is of the current generation."""
    if (event.generation, event.member_id) == (member.generation, member.member_id):
        answer = reaction(Request.COMMIT, event.error)
        if member.state in PARKED and answer in _NOT_WHILE_PARKED:
            member.drop_coordinator(turn)
        member.react(turn, answer, event, Request.COMMIT)


def session_lapsed(member: Member, turn: Turn) -> None:
    """Look up the coordinator again: after a whole session without a response it may have moved."""
    member.link.lapse(turn)
    if member.link.coordinator is not None:
        member.drop_coordinator(turn)
