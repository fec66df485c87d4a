"""The coordinator: finding it, staying in touch, and hearing from it that all is over."""

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

#: What cannot be done about a commit over a connection that has a request parked.
_NOT_WHILE_PARKED = (Reaction.LOSE_GENERATION, Reaction.LOSE_MEMBERSHIP, Reaction.FAIL)


def beat(member: Member, turn: Turn) -> None:
    """Send a heartbeat, unless the last one is still on its way."""
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
    """The coordinator is there, and should hear from us."""
    if member.link.found(event.serial) and member.link.session_ends_ms is not None:
        beat(member, turn)


def coordinator_not_found(member: Member, turn: Turn, event: CoordinatorNotFound) -> None:
    """Nobody knows the coordinator, or whoever does may not say."""
    if event.serial != member.link.finding:
        return
    member.link.finding = None
    if event.error is not None and reaction(Request.FIND, event.error) is Reaction.FAIL:
        member.fail(turn, event.error, "the coordinator lookup was rejected")
    elif member.state in INSIDE:
        member.link.back_off(turn)


def coordinator_lost(member: Member, turn: Turn, event: CoordinatorLost) -> None:
    """The connection to the coordinator is gone."""
    if event.serial == member.link.coordinator:
        member.link.lost()
        member.go_on_without_coordinator(turn)


def heartbeat_answered(member: Member, turn: Turn, event: HeartbeatAnswered) -> None:
    """Heartbeat is answered."""
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
    """A commit was refused as a whole: what that says of the member."""
    if (event.generation, event.member_id) == (member.generation, member.member_id):
        answer = reaction(Request.COMMIT, event.error)
        if member.state in PARKED and answer in _NOT_WHILE_PARKED:
            member.drop_coordinator(turn)
        member.react(turn, answer, event, Request.COMMIT)


def session_lapsed(member: Member, turn: Turn) -> None:
    """A whole session without a word: who we take for the coordinator may be none."""
    member.link.lapse(turn)
    if member.link.coordinator is not None:
        member.drop_coordinator(turn)
