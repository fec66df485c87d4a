"""One event's turn: the `Outcome` so far, and the time."""

from __future__ import annotations

from partage.member.outcome import Action, Outcome
from partage.member.timers import Timer


class Turn(Outcome):
    """What a handler may do to the world."""

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        super().__init__()
        self.at_ms = at_ms

    def do(self, action: Action) -> None:
        """Have the shell do something."""
        self.actions.append(action)

    def arm(self, key: Timer, delay_ms: int) -> None:
        """Have the timer fire after ``delay_ms``; an earlier deadline of the key is void."""
        self.timers.append((key, self.at_ms + delay_ms))

    def cancel(self, key: Timer) -> None:
        """Have the timer not fire."""
        self.timers.append((key, None))
