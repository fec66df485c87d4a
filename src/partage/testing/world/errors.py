"""Errors of simulated worlds."""

from __future__ import annotations


class NotSimulatedError(RuntimeError):
    """Raised if code in a simulated world uses something that cannot be simulated.

    Args:
        what: what the code did, such as "a thread was started".
        advice: what to do instead.
    """

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what} is not possible in a simulated world; {advice}")


class StalledWorldError(AssertionError):
    """Raised if the time of a world can no longer advance."""


class InvariantError(AssertionError):
    """Raised if an invariant of a world does not hold."""


class WaitTimeoutError(AssertionError):
    """Raised if a condition did not become true in time."""
