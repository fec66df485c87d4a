"""The state machine of a member of any group, whatever protocol is embedded.

`MembershipStateMachine.handle` takes one event and returns its `Outcome`. There are four requests
to the embedded protocol, each answered by an event: prepare to join (`PrepareJoin`), assign if the
member is the leader (`ComputeAssignment`), apply the assignment (`ApplyAssignment`), and give up
all partitions (`ReleaseAssignment`). `DiscardAssignment` notifies it that the member left its
generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partage.member import heartbeat, rebalance, user_requests
from partage.member.events import (
    AssignmentApplied,
    AssignmentComputed,
    AssignmentReleased,
    AssignorFailed,
    CommitRejected,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    Event,
    HeartbeatResponseReceived,
    JoinPrepared,
    JoinPrepareFailed,
    JoinResponseReceived,
    LeaveRequested,
    LeaveResponseReceived,
    MetadataChanged,
    Polled,
    RejoinRequested,
    StartRequested,
    SyncResponseReceived,
    TimerFired,
)
from partage.member.handler_context import HandlerContext
from partage.member.member import Member
from partage.member.outcome import Outcome
from partage.member.timers import MemberTimer


class MembershipStateMachine(Member):
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


def _timer_fired(member: Member, context: HandlerContext, event: TimerFired) -> None:
    match event.key:
        case MemberTimer.HEARTBEAT:
            heartbeat.send_heartbeat(member, context)
        case MemberTimer.SESSION:
            heartbeat.on_session_timeout(member, context)
        case MemberTimer.POLL:
            user_requests.on_poll_timeout(member, context)
        case MemberTimer.RETRY:
            member.link.is_backing_off = False
        case MemberTimer.REQUEST:
            member.drop_coordinator(context)
        case MemberTimer.METADATA:
            user_requests.on_metadata_timer(member, context)


_HANDLERS: dict[type[Event], Callable[[Member, HandlerContext, Any], None]] = {
    StartRequested: user_requests.on_start_requested,
    Polled: user_requests.on_polled,
    RejoinRequested: user_requests.on_rejoin_requested,
    MetadataChanged: user_requests.on_metadata_changed,
    LeaveRequested: user_requests.on_leave_requested,
    AssignmentReleased: user_requests.on_assignment_released,
    LeaveResponseReceived: user_requests.on_leave_response,
    CoordinatorFound: heartbeat.on_coordinator_found,
    CoordinatorNotFound: heartbeat.on_coordinator_not_found,
    CoordinatorLost: heartbeat.on_coordinator_lost,
    HeartbeatResponseReceived: heartbeat.on_heartbeat_response,
    CommitRejected: heartbeat.on_commit_rejected,
    JoinPrepared: rebalance.on_join_prepared,
    JoinPrepareFailed: rebalance.on_join_prepare_failed,
    JoinResponseReceived: rebalance.on_join_response,
    AssignmentComputed: rebalance.on_assignment_computed,
    AssignorFailed: rebalance.on_assignor_failed,
    SyncResponseReceived: rebalance.on_sync_response,
    AssignmentApplied: rebalance.on_assignment_applied,
    TimerFired: _timer_fired,
}
