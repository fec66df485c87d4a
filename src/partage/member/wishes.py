"""Handlers of the user's requests: start, poll, rejoin, leave."""

from __future__ import annotations

from partage.member.events import (
    Event,
    Leave,
    LeaveAnswered,
    MetadataChanged,
    Polled,
    RejoinWanted,
    Released,
)
from partage.member.member import Member
from partage.member.outcome import Left, Problem, Release, Report
from partage.member.states import INSIDE, PARKED, MemberState
from partage.member.timers import Timer
from partage.member.turn import Turn


def start(member: Member, turn: Turn, event: Event) -> None:
    """Start the member."""
    member.begin(turn)


def polled(member: Member, turn: Turn, event: Polled) -> None:
    """Stop the poll timer while the user is in poll; restart it when poll returns."""
    member.is_polled = event.is_waiting
    max_ms = member.settings.max_poll_interval_ms
    if max_ms is None:
        return
    if member.state is MemberState.DORMANT and event.is_waiting:
        member.become(turn, MemberState.WAITING)
    if member.state in INSIDE and event.is_waiting:
        turn.cancel(Timer.POLL)
    elif member.state in INSIDE:
        turn.arm(Timer.POLL, max_ms)


def too_slow(member: Member, turn: Turn) -> None:
    """Leave the group because poll was not called in time. The next poll reports it to the user."""
    reason = f"more than {member.settings.max_poll_interval_ms} ms between two polls"
    if not member.is_static:
        member.say_goodbye(turn, reason, is_parked=member.state in PARKED)
    member.abandon(turn, reason, forgets_id=True)
    member.become(turn, MemberState.DORMANT)
    turn.do(Report(problem=Problem.TOO_SLOW, reason=reason))


def rejoin_wanted(member: Member, turn: Turn, event: RejoinWanted) -> None:
    """Rejoin, now or after the current rebalance."""
    if member.state not in INSIDE:
        return
    if event.backs_off:
        member.link.back_off(turn)
    member.want_rejoin(turn, event.reason)


def metadata_changed(member: Member, turn: Turn, event: MetadataChanged) -> None:
    """Rejoin if this member is the leader or its own subscription changed; maybe after a delay."""
    if not (member.is_leader or event.is_own) or member.state not in INSIDE:
        return
    delay_ms = member.settings.metadata_rebalance_delay_ms
    if not delay_ms:
        member.want_rejoin(turn, event.reason)
        return
    if not member.gathered:
        turn.arm(Timer.METADATA, delay_ms)
    if event.reason not in member.gathered:
        member.gathered.append(event.reason)


def all_gathered(member: Member, turn: Turn) -> None:
    """Rejoin for all topic changes that were collected."""
    reason = "; ".join(member.gathered)
    member.gathered.clear()
    member.want_rejoin(turn, reason)


def leave_wanted(member: Member, turn: Turn, event: Leave) -> None:
    """Leave the group after all partitions are given up."""
    member.is_wanted = False
    if member.state is MemberState.OUT:
        turn.do(Left())
    elif member.state not in (MemberState.RELEASING, MemberState.LEAVING):
        member.leave = event
        member.was_parked = member.state in PARKED
        as_lost = not member.is_in_generation or _is_rebalancing(member)
        if as_lost:
            member.forget(turn, forgets_id=False)
        member.become(turn, MemberState.RELEASING)
        turn.do(Release(serial=member.ask(), as_lost=as_lost))


def _is_rebalancing(member: Member) -> bool:
    return member.state in PARKED or member.state is MemberState.ASSIGNING


def released(member: Member, turn: Turn, event: Released) -> None:
    """Send LeaveGroup after all partitions are given up, unless the member should not send it."""
    if event.serial != member.awaited:
        return
    tells = member.leave.tells
    if tells is None:
        tells = not member.is_static
    serial = member.say_goodbye(turn, member.leave.reason, member.was_parked) if tells else None
    member.forget(turn, forgets_id=True)
    if serial is None:
        member.out(turn)
    else:
        member.become(turn, MemberState.LEAVING)
        member.awaited = serial
        turn.arm(Timer.REQUEST, member.settings.request_timeout_ms)


def left(member: Member, turn: Turn, event: LeaveAnswered) -> None:
    """Finish leaving, whatever the LeaveGroup response says."""
    if member.state is MemberState.LEAVING and event.serial == member.awaited:
        member.out(turn)
