"""The timers and the transition tables that both state machines share."""

from __future__ import annotations

from enum import StrEnum

from partage.member.handler_context import HandlerContext
from partage.member.timers import MemberTimer
from partage.statemachine.states import predecessors


class Light(StrEnum):
    RED = "Red"
    AMBER = "Amber"
    GREEN = "Green"


def test_predecessors_include_states_without_any() -> None:
    transitions = [(Light.RED, Light.GREEN), (Light.AMBER, Light.GREEN), (Light.GREEN, Light.AMBER)]
    assert predecessors(Light, transitions) == {
        Light.RED: frozenset(),
        Light.AMBER: {Light.GREEN},
        Light.GREEN: {Light.RED, Light.AMBER},
    }


def test_context_arms_timer_relative_to_event_time() -> None:
    context = HandlerContext(at_ms=1_000)
    context.arm_timer(MemberTimer.POLL, 50)
    context.cancel_timer(MemberTimer.RETRY)
    assert context.timers == [(MemberTimer.POLL, 1_050), (MemberTimer.RETRY, None)]
