"""The event loop of a world, as its network, processes and clients see it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time."""

    @property
    @abstractmethod
    def elapsed_s(self) -> float:
        """The virtual time since the start of the world, in seconds."""

    @abstractmethod
    def make_ready(self, handles: Sequence[asyncio.Handle]) -> None:
        """Run delayed callbacks in the next turn."""

    @abstractmethod
    def run_turn(self) -> None:
        """Run one turn while a callback of this loop waits for the result of another task."""

    @abstractmethod
    def next_serial(self) -> int:
        """Return a number that is higher than those of all timers so far."""

    @abstractmethod
    def first_timer_s(self, process: object, after_serial: int) -> float:
        """Return the time of a process's first timer with a higher number; infinity without one."""
