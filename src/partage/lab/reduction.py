"""Reduction of a failing plan to few steps that still fail (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Step = TypeVar("Step")


def reduce_steps(
    steps: Sequence[Step],
    still_fails: Callable[[Sequence[Step]], bool],
    *,
    dropped_max: int | None = None,
) -> Sequence[Step]:
    """Drop all steps, then halves, quarters and so on down to single steps.

    Args:
        steps: The steps of a run that failed.
        still_fails: Runs with fewer steps, and returns True if they fail in the same way.
        dropped_max: The most steps to drop at once; all if None.

    Returns:
        The remaining steps: ``steps``, or the last ones with which ``still_fails`` returned True.
    """
    size = len(steps) if dropped_max is None else dropped_max
    while size:
        at = 0
        while at < len(steps):
            fewer = [*steps[:at], *steps[at + size :]]
            if still_fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps
