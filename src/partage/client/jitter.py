"""Random variation of waits, so that many clients do not send their requests at the same time."""

from __future__ import annotations

from random import SystemRandom
from typing import Final

_VARIATION: Final = 0.2  # the share of Kafka's clients
#: Not the global generator: a program may seed that one, and Hypothesis reports uses in other
#: threads.
_RANDOM: Final = SystemRandom()


def jittered(wait_s: float) -> float:
    """Return a wait of 80 to 120 % of ``wait_s``, in seconds."""
    return wait_s * between(1 - _VARIATION, 1 + _VARIATION)


def between(low: float, high: float) -> float:
    """Return a random number in this range."""
    return _RANDOM.uniform(low, high)
