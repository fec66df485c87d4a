"""Handlers of JoinGroup and SyncGroup: from a rejoin request to an applied assignment."""

from __future__ import annotations

from partage.member.events import (
    AssignmentApplied,
    AssignmentComputed,
    AssignorFailed,
    JoinPrepared,
    JoinPrepareFailed,
    JoinResponseReceived,
    SyncResponseReceived,
)
from partage.member.handler_context import HandlerContext
from partage.member.member import Member
from partage.member.outcome import (
    ApplyAssignment,
    ComputeAssignment,
    Problem,
    ReportProblem,
    SendJoin,
    SendSync,
    WatchTopics,
)
from partage.member.reactions import CoordinatorRequest, Reaction, reaction_to
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode


def on_join_prepared(member: Member, context: HandlerContext, event: JoinPrepared) -> None:
    """Send JoinGroup with the encoded metadata."""
    if event.serial != member.awaited_serial:
        return
    if member.link.coordinator_serial is None:
        member.transition_to(context, MemberState.UNJOINED)
        return
    member.transition_to(context, MemberState.JOINING)
    member.offered_protocol_names = frozenset(protocol.name for protocol in event.protocols)
    settings = member.settings
    context.add_action(
        SendJoin(
            serial=member.next_awaited_serial(),
            member_id=member.member_id,
            instance_id=settings.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=settings.protocol_type,
            protocols=event.protocols,
            reason=member.join_reason,
        )
    )
    _arm_parked_request_timer(member, context)


def on_join_prepare_failed(
    member: Member, context: HandlerContext, event: JoinPrepareFailed
) -> None:
    """Fail, because there is no metadata to join with."""
    if event.serial == member.awaited_serial:
        member.fail_fatally(context, ErrorCode.UNKNOWN_SERVER_ERROR, event.reason)


def _arm_parked_request_timer(member: Member, context: HandlerContext) -> None:
    settings = member.settings
    # JoinGroup v0 has no rebalance timeout: the session timeout is used for both.
    longest_ms = max(settings.rebalance_timeout_ms, settings.session_timeout_ms)
    parked_ms = longest_ms + settings.parked_request_grace_ms
    context.arm_timer(MemberTimer.REQUEST, max(parked_ms, settings.request_timeout_ms))


def on_join_response(member: Member, context: HandlerContext, event: JoinResponseReceived) -> None:
    """Start the generation, or react to the error."""
    if event.serial != member.awaited_serial:
        return
    answer = reaction_to(CoordinatorRequest.JOIN, event.error)
    if answer is Reaction.CONTINUE:
        _start_generation(member, context, event)
    elif answer is Reaction.REJOIN_WITH_ID:
        member.member_id = event.member_id
        member.join_reason = "rejoin with the given member id"
        member.transition_to(context, MemberState.UNJOINED)
    else:
        member.apply_reaction(context, answer, event, CoordinatorRequest.JOIN)


def _start_generation(member: Member, context: HandlerContext, event: JoinResponseReceived) -> None:
    """Start the generation. Owned partitions belong to an earlier one until the sync."""
    if event.protocol_type not in (None, member.settings.protocol_type):
        wrong = f"the group's protocol type is {event.protocol_type}"
        member.fail_fatally(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    if event.protocol is None or event.protocol not in member.offered_protocol_names:
        wrong = f"the coordinator chose {event.protocol}, which this member did not offer"
        member.fail_fatally(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    member.member_id = event.member_id
    member.generation = event.generation
    member.has_unanswered_join = False
    member.protocol = event.protocol
    member.is_leader = event.leader == event.member_id
    member.link.is_session_expired = False
    if member.is_leader and not event.skip_assignment:
        member.transition_to(context, MemberState.ASSIGNING)
        context.add_action(
            ComputeAssignment(
                serial=member.next_awaited_serial(),
                generation=event.generation,
                protocol=event.protocol,
                members=event.members,
            )
        )
        return
    if member.is_leader:
        context.add_action(WatchTopics(members=event.members))
    _send_sync(member, context, {}, None)


def on_assignment_computed(
    member: Member, context: HandlerContext, event: AssignmentComputed
) -> None:
    """Send the computed assignment to the coordinator."""
    if event.serial == member.awaited_serial:
        _send_sync(member, context, event.assignments, None)


def on_assignor_failed(member: Member, context: HandlerContext, event: AssignorFailed) -> None:
    """Report the failure in SyncGroup, so that the group does not wait for a timeout."""
    if event.serial == member.awaited_serial:
        _send_sync(member, context, event.assignments, event.reason)


def _send_sync(
    member: Member, context: HandlerContext, assignments: dict[str, bytes], error: str | None
) -> None:
    if member.link.coordinator_serial is None:  # The next coordinator may not know the generation
        member.transition_to(context, MemberState.UNJOINED)
        return
    assert member.protocol is not None
    member.transition_to(context, MemberState.SYNCING)
    context.add_action(
        SendSync(
            serial=member.next_awaited_serial(),
            generation=member.generation,
            member_id=member.member_id,
            instance_id=member.settings.instance_id,
            protocol_type=member.settings.protocol_type,
            protocol=member.protocol,
            assignments=assignments,
            assignment_error=error,
        )
    )
    _arm_parked_request_timer(member, context)


def on_sync_response(member: Member, context: HandlerContext, event: SyncResponseReceived) -> None:
    """Apply the assignment, or react to the error."""
    if event.serial != member.awaited_serial:
        return
    if event.assignment_error is not None:
        reason = event.assignment_error
        context.add_action(ReportProblem(problem=Problem.ASSIGNMENT_FAILED, reason=reason))
    answer = reaction_to(CoordinatorRequest.SYNC, event.error)
    if answer is Reaction.CONTINUE:
        _apply_sync(member, context, event)
    elif answer is Reaction.REJOIN and event.assignment_error is not None:
        member.apply_reaction(
            context, Reaction.REJOIN_AFTER_BACKOFF, event, CoordinatorRequest.SYNC
        )
    else:
        member.apply_reaction(context, answer, event, CoordinatorRequest.SYNC)


def _apply_sync(member: Member, context: HandlerContext, event: SyncResponseReceived) -> None:
    assert member.protocol is not None
    said = (event.protocol_type, member.settings.protocol_type), (event.protocol, member.protocol)
    if any(theirs not in (None, ours) for theirs, ours in said):
        named = f"{event.protocol_type} {event.protocol}"
        wrong = f"SyncGroup names protocol {named}, not {member.protocol}"
        member.fail_fatally(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    member.transition_to(context, MemberState.RECONCILING)
    context.add_action(
        ApplyAssignment(
            serial=member.next_awaited_serial(),
            generation=member.generation,
            protocol=member.protocol,
            assignment=event.assignment,
        )
    )


def on_assignment_applied(
    member: Member, context: HandlerContext, event: AssignmentApplied
) -> None:
    """Become stable after the assignment is applied; rejoin if that is pending."""
    if event.serial != member.awaited_serial:
        return
    member.transition_to(context, MemberState.STABLE)
    member.link.reset_backoff()
    if member.is_rejoin_pending:
        member.transition_to(context, MemberState.UNJOINED)
