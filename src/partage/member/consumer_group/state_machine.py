"""The event handlers of a member with the consumer group protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partage.member.consumer_group.events import (
    ConsumerHeartbeatResponseReceived,
    TopicIdsResolved,
)
from partage.member.consumer_group.member import ConsumerMemberBase
from partage.member.consumer_group.outcome import JOIN_EPOCH
from partage.member.consumer_group.reactions import (
    ConsumerGroupRequest,
    HeartbeatReaction,
    heartbeat_reaction,
)
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.events import (
    CallbackCompleted,
    CommitRejected,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    DrainRequested,
    Event,
    LeaveRequested,
    Polled,
    StartRequested,
    SubscriptionChanged,
    TimerFired,
)
from partage.member.handler_context import HandlerContext
from partage.member.outcome import LeftGroup, ListenerCallback, Outcome, Problem, ReportProblem
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

_S = ConsumerMemberState

#: The states in which a subscription starts the member again.
_RESTARTING_STATES = frozenset({_S.UNSUBSCRIBED, _S.FATAL, _S.PREPARE_LEAVING, _S.LEAVING})


class ConsumerGroupMember(ConsumerMemberBase):
    """A member of a group; its state is that after the last event."""

    def handle(self, event: Event) -> Outcome:
        """Handle ``event`` and return its outcome.

        See `Outcome` for the duties of the caller.
        """
        context = HandlerContext(event.at_ms)
        self.link.check_session_deadline(event.at_ms)
        _HANDLERS[type(event)](self, context, event)
        self.advance(context)
        return context


# Requests of the user


def _on_start_requested(
    member: ConsumerGroupMember, context: HandlerContext, event: StartRequested
) -> None:
    member.start(context)


def _on_subscription_changed(
    member: ConsumerGroupMember, context: HandlerContext, event: SubscriptionChanged
) -> None:
    is_out = member.state in _RESTARTING_STATES
    if is_out and event.is_by_pattern:
        return  # The user has not restarted the member
    has_changed = (event.topics, event.regex) != (member.topics, member.regex)
    member.topics, member.regex = event.topics, event.regex
    if is_out:
        member.start(context)
    elif has_changed:
        member.request_heartbeat(context)


def _on_polled(member: ConsumerGroupMember, context: HandlerContext, event: Polled) -> None:
    """Stop the poll timer while the user is in poll; restart it when poll returns."""
    member.is_in_poll = event.is_in_poll
    max_ms = member.settings.max_poll_interval_ms
    if max_ms is None or not member.must_be_polled:
        return
    if event.is_in_poll:
        context.cancel_timer(MemberTimer.POLL)
    else:
        context.arm_timer(MemberTimer.POLL, max_ms)


def _on_poll_timeout(member: ConsumerGroupMember, context: HandlerContext) -> None:
    """Leave the group because poll was not called in time. The next poll reports it to the user.

    A member that leaves waits for the user to poll, who runs the callback. It only stops waiting.
    """
    if member.state is _S.PREPARE_LEAVING:
        member.lose_release(context)
        return
    reason = f"more than {member.settings.max_poll_interval_ms} ms between two polls"
    member.send_leave(context, member.leave_epoch_to_send)
    member.leave_epoch(context)
    member.has_lost_partitions = bool(member.owned_ids)
    member.transition_to(context, _S.STALE)
    context.add_action(ReportProblem(problem=Problem.POLL_TIMEOUT, reason=reason))


def _on_leave_requested(
    member: ConsumerGroupMember, context: HandlerContext, event: LeaveRequested
) -> None:
    """Leave the group after all partitions are given up."""
    member.is_membership_wanted = False
    if member.state is _S.UNSUBSCRIBED:
        context.add_action(LeftGroup())
    elif member.state not in (_S.PREPARE_LEAVING, _S.LEAVING):
        member.leave_request = event
        member.is_release_lost = not member.is_in_group
        # An acknowledgement that waits for a response is not sent: a leaving member reports nothing
        is_acknowledgement_due = member.state is _S.ACKNOWLEDGING and member.in_flight is not None
        member.is_heartbeat_due &= member.is_in_group and not is_acknowledgement_due
        member.transition_to(context, _S.PREPARE_LEAVING)


def _on_drain_requested(
    member: ConsumerGroupMember, context: HandlerContext, event: DrainRequested
) -> None:
    """Leave for good: the coordinator assigns the partitions as soon as the member has left."""
    _on_leave_requested(
        member,
        context,
        LeaveRequested(at_ms=event.at_ms, reason=event.reason, sends_leave_group=True),
    )


def _on_callback_completed(
    member: ConsumerGroupMember, context: HandlerContext, event: CallbackCompleted
) -> None:
    """Drop the partitions of a completed callback, unless they were assigned."""
    call = member.open_callback
    if call is None or call.serial != event.serial:
        return
    member.open_callback = None
    if call.callback is not ListenerCallback.ASSIGNED:
        for partition in call.partitions:
            member.owned_ids.pop(partition, None)


def _on_topic_ids_resolved(
    member: ConsumerGroupMember, context: HandlerContext, event: TopicIdsResolved
) -> None:
    """Take the names of topics; ask again later for those that the metadata lacks."""
    if event.serial != member.resolving_serial:
        return
    member.resolving_serial = None
    unknown = member.unknown_topic_ids()
    member.topic_names |= {each: name for each, name in event.names.items() if each in unknown}
    if member.unknown_topic_ids():
        context.arm_timer(MemberTimer.METADATA, member.settings.retry_backoff_max_ms)


# Coordinator


def _on_coordinator_found(
    member: ConsumerGroupMember, context: HandlerContext, event: CoordinatorFound
) -> None:
    member.link.accept_coordinator(event.serial)


def _on_coordinator_not_found(
    member: ConsumerGroupMember, context: HandlerContext, event: CoordinatorNotFound
) -> None:
    """Back off after a failed lookup, or fail if the coordinator may not be looked up."""
    if event.serial != member.link.lookup_serial:
        return
    member.link.lookup_serial = None
    if not member.needs_coordinator:
        return
    if event.error is None or (
        heartbeat_reaction(ConsumerGroupRequest.FIND, event.error) is not HeartbeatReaction.FAIL
    ):
        member.link.start_backoff(context)
    elif member.state is _S.LEAVING:
        member.finish_leaving(context)
    else:
        member.fail_fatally(context, event.error, "the coordinator lookup was rejected")


def _on_coordinator_lost(
    member: ConsumerGroupMember, context: HandlerContext, event: CoordinatorLost
) -> None:
    """Continue without the coordinator after its connection closed."""
    if event.serial == member.link.coordinator_serial:
        member.link.clear_coordinator()
        member.continue_without_coordinator(context)


def _on_heartbeat_response(
    member: ConsumerGroupMember, context: HandlerContext, event: ConsumerHeartbeatResponseReceived
) -> None:
    """Accept the response to the heartbeat in flight, or react to the error."""
    if event.serial == member.awaited_serial:
        _on_leave_response(member, context, event.error)
        return
    sent = member.in_flight
    if sent is None or event.serial != sent.serial:
        return
    member.in_flight = None
    is_joining = member.epoch == JOIN_EPOCH
    request = ConsumerGroupRequest.JOIN if is_joining else ConsumerGroupRequest.HEARTBEAT
    reaction = heartbeat_reaction(request, event.error)
    if reaction is HeartbeatReaction.CONTINUE:
        member.accept_heartbeat(context, sent, event)
    else:
        reason = event.error_message or f"the heartbeat failed with {event.error.name}"
        member.apply_heartbeat_error(context, reaction, event.error, reason)


def _on_leave_response(
    member: ConsumerGroupMember, context: HandlerContext, error: ErrorCode
) -> None:
    match heartbeat_reaction(ConsumerGroupRequest.HEARTBEAT, error):
        case HeartbeatReaction.RETRY:
            member.repeat_leave(context)
        case HeartbeatReaction.FIND_COORDINATOR:
            member.drop_coordinator(context)
        case _:
            member.finish_leaving(context)


def _on_commit_rejected(
    member: ConsumerGroupMember, context: HandlerContext, event: CommitRejected
) -> None:
    """Check the membership after a rejected commit of the current epoch."""
    if (event.generation, event.member_id) == (member.epoch, member.member_id):
        reaction = heartbeat_reaction(ConsumerGroupRequest.COMMIT, event.error)
        reason = f"OffsetCommit failed with {event.error.name}"
        member.apply_heartbeat_error(context, reaction, event.error, reason)


# Timers


def _on_timer_fired(
    member: ConsumerGroupMember, context: HandlerContext, event: TimerFired
) -> None:
    match event.key:
        case MemberTimer.HEARTBEAT:
            member.is_heartbeat_due = True
        case MemberTimer.SESSION:
            member.link.expire_session(context)
            if member.in_flight is not None:  # The coordinator may have moved
                member.drop_coordinator(context)
        case MemberTimer.POLL:
            _on_poll_timeout(member, context)
        case MemberTimer.RETRY:
            member.link.is_backing_off = False
        case MemberTimer.REQUEST:
            if member.awaited_serial is not None:
                member.link.disconnect(context)
            member.finish_leaving(context)
        case MemberTimer.METADATA:
            member.resolve_topic_ids(context)


_HANDLERS: dict[type[Event], Callable[[ConsumerGroupMember, HandlerContext, Any], None]] = {
    StartRequested: _on_start_requested,
    SubscriptionChanged: _on_subscription_changed,
    Polled: _on_polled,
    LeaveRequested: _on_leave_requested,
    DrainRequested: _on_drain_requested,
    CallbackCompleted: _on_callback_completed,
    TopicIdsResolved: _on_topic_ids_resolved,
    CoordinatorFound: _on_coordinator_found,
    CoordinatorNotFound: _on_coordinator_not_found,
    CoordinatorLost: _on_coordinator_lost,
    ConsumerHeartbeatResponseReceived: _on_heartbeat_response,
    CommitRejected: _on_commit_rejected,
    TimerFired: _on_timer_fired,
}
