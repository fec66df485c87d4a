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

from partage.member import joining, staying, wishes
from partage.member.events import (
    Adopted,
    Assigned,
    AssignFailed,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    Leave,
    LeaveAnswered,
    MetadataChanged,
    Polled,
    Prepared,
    PrepareFailed,
    RejoinWanted,
    Released,
    Start,
    SyncAnswered,
    TimerFired,
)
from partage.member.member import Member
from partage.member.outcome import Outcome
from partage.member.timers import Timer
from partage.member.turn import Turn


class Membership(Member):
    """A member of a group; its state is that after the last event."""

    def handle(self, event: Event) -> Outcome:
        """Handle ``event`` and return its outcome.

        See `Outcome` for the duties of the caller.
        """
        turn = Turn(event.at_ms)
        self.link.look_at_clock(event.at_ms)
        _HANDLERS[type(event)](self, turn, event)
        self.advance(turn)
        return turn


def _timer_fired(member: Member, turn: Turn, event: TimerFired) -> None:
    match event.key:
        case Timer.HEARTBEAT:
            staying.beat(member, turn)
        case Timer.SESSION:
            staying.session_lapsed(member, turn)
        case Timer.POLL:
            wishes.too_slow(member, turn)
        case Timer.RETRY:
            member.link.is_backing_off = False
        case Timer.REQUEST:
            member.drop_coordinator(turn)
        case Timer.METADATA:
            wishes.all_gathered(member, turn)


_HANDLERS: dict[type[Event], Callable[[Member, Turn, Any], None]] = {
    Start: wishes.start,
    Polled: wishes.polled,
    RejoinWanted: wishes.rejoin_wanted,
    MetadataChanged: wishes.metadata_changed,
    Leave: wishes.leave_wanted,
    Released: wishes.released,
    LeaveAnswered: wishes.left,
    CoordinatorFound: staying.coordinator_found,
    CoordinatorNotFound: staying.coordinator_not_found,
    CoordinatorLost: staying.coordinator_lost,
    HeartbeatAnswered: staying.heartbeat_answered,
    CommitAnswered: staying.commit_answered,
    Prepared: joining.prepared,
    PrepareFailed: joining.prepare_failed,
    JoinAnswered: joining.join_answered,
    Assigned: joining.assigned,
    AssignFailed: joining.assign_failed,
    SyncAnswered: joining.sync_answered,
    Adopted: joining.adopted,
    TimerFired: _timer_fired,
}
