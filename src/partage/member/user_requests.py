"""Handlers of the user's requests: start, poll, rejoin, leave."""

from __future__ import annotations

from partage.member.events import (
    AssignmentReleased,
    Event,
    LeaveRequested,
    LeaveResponseReceived,
    MetadataChanged,
    Polled,
    RejoinRequested,
)
from partage.member.handler_context import HandlerContext
from partage.member.member import Member
from partage.member.outcome import LeftGroup, Problem, ReleaseAssignment, ReportProblem
from partage.member.states import ACTIVE_STATES, PARKED_STATES, MemberState
from partage.member.timers import MemberTimer


def on_start_requested(member: Member, context: HandlerContext, event: Event) -> None:
    """Start the member."""
    member.start(context)


def on_polled(member: Member, context: HandlerContext, event: Polled) -> None:
    """Stop the poll timer while the user is in poll; restart it when poll returns."""
    member.is_in_poll = event.is_in_poll
    max_ms = member.settings.max_poll_interval_ms
    if max_ms is None:
        return
    if member.state is MemberState.STALE and event.is_in_poll:
        member.transition_to(context, MemberState.UNJOINED)
    if member.state in ACTIVE_STATES and event.is_in_poll:
        context.cancel_timer(MemberTimer.POLL)
    elif member.state in ACTIVE_STATES:
        context.arm_timer(MemberTimer.POLL, max_ms)


def on_poll_timeout(member: Member, context: HandlerContext) -> None:
    """Leave the group because poll was not called in time. The next poll reports it to the user."""
    reason = f"more than {member.settings.max_poll_interval_ms} ms between two polls"
    if not member.is_static:
        member.send_leave_group(context, reason, is_parked=member.state in PARKED_STATES)
    member.discard_assignment(context, reason, forgets_id=True)
    member.transition_to(context, MemberState.STALE)
    context.add_action(ReportProblem(problem=Problem.POLL_TIMEOUT, reason=reason))


def on_rejoin_requested(member: Member, context: HandlerContext, event: RejoinRequested) -> None:
    """Rejoin, now or after the current rebalance."""
    if member.state not in ACTIVE_STATES:
        return
    if event.has_backoff:
        member.link.start_backoff(context)
    member.request_rejoin(context, event.reason)


def on_metadata_changed(member: Member, context: HandlerContext, event: MetadataChanged) -> None:
    """Rejoin if this member is the leader or its own subscription changed; maybe after a delay."""
    if not (member.is_leader or event.is_own_subscription) or member.state not in ACTIVE_STATES:
        return
    delay_ms = member.settings.metadata_rebalance_delay_ms
    if not delay_ms:
        member.request_rejoin(context, event.reason)
        return
    if not member.pending_topic_changes:
        context.arm_timer(MemberTimer.METADATA, delay_ms)
    if event.reason not in member.pending_topic_changes:
        member.pending_topic_changes.append(event.reason)


def on_metadata_timer(member: Member, context: HandlerContext) -> None:
    """Rejoin for all topic changes that were collected."""
    reason = "; ".join(member.pending_topic_changes)
    member.pending_topic_changes.clear()
    member.request_rejoin(context, reason)


def on_leave_requested(member: Member, context: HandlerContext, event: LeaveRequested) -> None:
    """Leave the group after all partitions are given up."""
    member.is_membership_wanted = False
    if member.state is MemberState.UNSUBSCRIBED:
        context.add_action(LeftGroup())
    elif member.state not in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
        member.leave_request = event
        member.was_request_parked = member.state in PARKED_STATES
        as_lost = not member.is_in_generation or _is_rebalancing(member)
        if as_lost:
            member.reset_generation(context, forgets_id=False)
        member.transition_to(context, MemberState.PREPARE_LEAVING)
        context.add_action(ReleaseAssignment(serial=member.next_awaited_serial(), is_lost=as_lost))


def _is_rebalancing(member: Member) -> bool:
    return member.state in PARKED_STATES or member.state is MemberState.ASSIGNING


def on_assignment_released(
    member: Member, context: HandlerContext, event: AssignmentReleased
) -> None:
    """Send LeaveGroup after all partitions are given up, unless the member should not send it."""
    if event.serial != member.awaited_serial:
        return
    tells = member.leave_request.sends_leave_group
    if tells is None:
        tells = not member.is_static
    serial = (
        member.send_leave_group(context, member.leave_request.reason, member.was_request_parked)
        if tells
        else None
    )
    member.reset_generation(context, forgets_id=True)
    if serial is None:
        member.finish_leaving(context)
    else:
        member.transition_to(context, MemberState.LEAVING)
        member.awaited_serial = serial
        context.arm_timer(MemberTimer.REQUEST, member.settings.request_timeout_ms)


def on_leave_response(
    member: Member, context: HandlerContext, event: LeaveResponseReceived
) -> None:
    """Finish leaving, whatever the LeaveGroup response says."""
    if member.state is MemberState.LEAVING and event.serial == member.awaited_serial:
        member.finish_leaving(context)
