"""The clocks of a broker in a world."""

from __future__ import annotations

from partage.broker.clock import Clock
from partage.testing.world.virtual_loop import VirtualLoop


class LoopClock(Clock):
    """Clocks that return the virtual time.

    The functions of `time` return it, too, but most requests ask for `now_ms`, and the loop answers
    in less time.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def now_ms(self) -> int:
        """Return the virtual time since the epoch, for events and timers."""
        return (round(self._loop.time() * 1e9) + self._offset_ns) // 1_000_000
