"""The timers of an outcome under construction."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")


class TimerContext(Generic[Key]):
    """The base of an event's context: arms and cancels timers, relative to the time of the event.

    A subclass has the attributes: ``timers`` is the list of the `Outcome`, and ``at_ms`` the time
    of the event.
    """

    __slots__ = ()

    at_ms: int
    timers: list[tuple[Key, int | None]]

    def arm_timer(self, key: Key, delay_ms: int) -> None:
        """Arm a timer to fire after ``delay_ms``; this replaces the key's earlier deadline."""
        self.timers.append((key, self.at_ms + delay_ms))

    def cancel_timer(self, key: Key) -> None:
        """Cancel a timer."""
        self.timers.append((key, None))
