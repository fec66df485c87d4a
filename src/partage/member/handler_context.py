"""The context of one event handler: the outcome so far, and the time."""

from __future__ import annotations

from partage.member.outcome import Action, Outcome
from partage.member.timers import MemberTimer
from partage.statemachine.context import TimerContext


class HandlerContext(TimerContext[MemberTimer], Outcome):
    """An `Outcome` under construction, with the time of the event."""

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        super().__init__()
        self.at_ms = at_ms

    def add_action(self, action: Action) -> None:
        """Append an action."""
        self.actions.append(action)
