"""Handlers of heartbeats, of the coordinator lookup, and of rejected commits."""

from __future__ import annotations

from partage.member.events import (
    CommitRejected,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    HeartbeatResponseReceived,
)
from partage.member.handler_context import HandlerContext
from partage.member.member import Member
from partage.member.outcome import SendHeartbeat
from partage.member.reactions import CoordinatorRequest, Reaction, reaction_to
from partage.member.states import ACTIVE_STATES, PARKED_STATES, MemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

#: Reactions to a commit that require a new connection if a request is parked.
_NOT_WHILE_PARKED = (Reaction.LOSE_GENERATION, Reaction.LOSE_MEMBERSHIP, Reaction.FAIL)


def send_heartbeat(member: Member, context: HandlerContext) -> None:
    """Send a heartbeat, unless the last one is unanswered."""
    link = member.link
    link.schedule_heartbeat(context)
    if link.coordinator_serial is None or link.heartbeat_in_flight is not None:
        return
    serial = link.next_serial()
    link.heartbeat_in_flight = serial, context.at_ms
    context.add_action(
        SendHeartbeat(
            serial=serial,
            generation=member.generation,
            member_id=member.member_id,
            instance_id=member.settings.instance_id,
        )
    )


def on_coordinator_found(member: Member, context: HandlerContext, event: CoordinatorFound) -> None:
    """Use the found coordinator, and send it a heartbeat if the member has a session."""
    if member.link.accept_coordinator(event.serial) and member.link.session_deadline_ms is not None:
        send_heartbeat(member, context)


def on_coordinator_not_found(
    member: Member, context: HandlerContext, event: CoordinatorNotFound
) -> None:
    """Back off after a failed lookup, or fail if the coordinator may not be looked up."""
    if event.serial != member.link.lookup_serial:
        return
    member.link.lookup_serial = None
    if (
        event.error is not None
        and reaction_to(CoordinatorRequest.FIND, event.error) is Reaction.FAIL
    ):
        member.fail_fatally(context, event.error, "the coordinator lookup was rejected")
    elif member.state in ACTIVE_STATES:
        member.link.start_backoff(context)


def on_coordinator_lost(member: Member, context: HandlerContext, event: CoordinatorLost) -> None:
    """Continue without the coordinator after its connection closed."""
    if event.serial == member.link.coordinator_serial:
        member.link.clear_coordinator()
        member.continue_without_coordinator(context)


def on_heartbeat_response(
    member: Member, context: HandlerContext, event: HeartbeatResponseReceived
) -> None:
    """Extend the session, or react to the error."""
    if (
        member.link.heartbeat_in_flight is None
        or event.serial != member.link.heartbeat_in_flight[0]
    ):
        return
    _, sent_ms = member.link.heartbeat_in_flight
    member.link.heartbeat_in_flight = None
    answer = reaction_to(CoordinatorRequest.HEARTBEAT, event.error)
    if answer in (Reaction.CONTINUE, Reaction.REBALANCE):
        member.link.reset_backoff()
        member.link.extend_session(context, sent_ms)
        if member.link.is_session_expired:
            send_heartbeat(member, context)
    if answer is not Reaction.CONTINUE:
        member.apply_reaction(context, answer, event, CoordinatorRequest.HEARTBEAT)


def on_commit_rejected(member: Member, context: HandlerContext, event: CommitRejected) -> None:
    """React to a rejected commit, if it is of the current generation."""
    if (event.generation, event.member_id) != (member.generation, member.member_id):
        return
    if event.error is ErrorCode.ILLEGAL_GENERATION and _is_overtaken_by_join(member):
        _expect_join_response(member, context)
        return
    answer = reaction_to(CoordinatorRequest.COMMIT, event.error)
    if member.state in PARKED_STATES and answer in _NOT_WHILE_PARKED:
        member.drop_coordinator(context)
    member.apply_reaction(context, answer, event, CoordinatorRequest.COMMIT)


def _is_overtaken_by_join(member: Member) -> bool:
    """True if a commit is of an earlier generation because the JoinGroup under way started another.

    Commits have a separate connection, so their responses may overtake that of the JoinGroup. The
    group may have gone on without a static member, which keeps its place. If an earlier JoinGroup
    got no response, that one may have started a generation whose assignment the member missed.
    """
    is_first_join = member.state is MemberState.JOINING and not member.has_unanswered_join
    return is_first_join and not member.is_static


def _expect_join_response(member: Member, context: HandlerContext) -> None:
    """Wait no longer for the response to JoinGroup than for that of other requests.

    The coordinator counts the session from now on. If the response is lost, the member must rejoin
    before others get its partitions.
    """
    if not member.is_join_response_due:
        member.is_join_response_due = True
        settings = member.settings
        limit_ms = min(settings.request_timeout_ms, settings.session_timeout_ms)
        context.arm_timer(MemberTimer.REQUEST, limit_ms)


def on_session_timeout(member: Member, context: HandlerContext) -> None:
    """Look up the coordinator again: after a whole session without a response it may have moved."""
    member.link.expire_session(context)
    if member.link.coordinator_serial is not None:
        member.drop_coordinator(context)
