"""The timers of an event's context."""

from __future__ import annotations

from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import Outcome
from partage.coordinator.timers import JoinTimer, SyncTimer
from partage.member.handler_context import HandlerContext
from partage.member.timers import MemberTimer
from partage.model.settings import GroupSettings


def test_member_context_arms_timer_relative_to_event_time() -> None:
    context = HandlerContext(at_ms=1_000)
    context.arm_timer(MemberTimer.POLL, 50)
    context.cancel_timer(MemberTimer.RETRY)
    assert context.timers == [(MemberTimer.POLL, 1_050), (MemberTimer.RETRY, None)]


def test_coordinator_context_arms_timer_of_its_outcome() -> None:
    context = EventContext(1_000, GroupSettings(), lambda record: None)
    context.arm_timer(JoinTimer("g"), 50)
    context.cancel_timer(SyncTimer("g"))
    assert isinstance(context, Outcome)
    assert context.timers == [(JoinTimer("g"), 1_050), (SyncTimer("g"), None)]
