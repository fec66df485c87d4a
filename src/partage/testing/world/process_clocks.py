"""The wall clocks of processes, which may differ from the time of the world."""

from __future__ import annotations

from partage.testing.world.process import current_process


class ProcessClocks:
    """The differences of the processes' wall clocks from the time of the world, in seconds.

    They stay when a process restarts.
    """

    def __init__(self) -> None:
        self._ahead_s: dict[str, float] = {}

    def set(self, name: str, ahead_s: float) -> None:
        """Set the difference of a process's wall clock in seconds; less than 0 is behind."""
        self._ahead_s[name] = ahead_s

    def ahead_s(self) -> float:
        """Return how far the wall clock of the running code's process is ahead, in seconds."""
        if not self._ahead_s:
            return 0.0
        process = current_process.get()
        return 0.0 if process is None else self._ahead_s.get(process.name, 0.0)
