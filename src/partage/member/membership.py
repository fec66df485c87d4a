"""A member of a group, for whatever protocol is embedded in it: the core's lower door.

`Membership.handle` takes one event and gives its `Outcome`. The embedded protocol is asked four
things, each answered by an event: to get ready (`Prepare`), to assign if the member leads
(`Assign`), to take its assignment over (`Adopt`), to give everything up (`Release`). It is told,
and has no choice, when the member is out of its generation (`Abandon`).
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
    """One member, as of the last event."""

    def handle(self, event: Event) -> Outcome:
        """What comes of ``event``; see `Outcome` for what must be done with it."""
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
