"""The context of one event handler: the outcome so far, and the time."""

from __future__ import annotations

from partage.member.outcome import Action, Outcome
from partage.member.timers import MemberTimer


class HandlerContext(Outcome):
    """An `Outcome` under construction, with the time of the event."""

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        super().__init__()
        self.at_ms = at_ms

    def add_action(self, action: Action) -> None:
        """Append an action."""
        self.actions.append(action)

    def arm_timer(self, key: MemberTimer, delay_ms: int) -> None:
        """Arm a timer to fire after ``delay_ms``; replaces an earlier deadline of the key."""
        self.timers.append((key, self.at_ms + delay_ms))

    def cancel_timer(self, key: MemberTimer) -> None:
        """Cancel a timer."""
        self.timers.append((key, None))
